// Memory windows: a narrower view of a region, given to peers and taken back by work requests.

#include <cerrno>

#include "verbs/soft/soft_provider.h"

namespace beeline::verbs::soft {

ibv_mw* SoftProvider::alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  if (!holds(pd) || (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)) return fail_null<ibv_mw>(EINVAL);
  const auto key = card_.allocate_window(mine(pd)->id, static_cast<nic::WindowType>(type));
  if (!key) return fail_null<ibv_mw>(note(key.error()));
  auto mw = std::make_unique<Mw>();
  mw->pd = pd;
  mw->rkey = mw->handle = key->value;
  mw->type = type;
  mw->home = mine(pd);
  mw->first_key = *key;
  mw->is_type_1 = type == IBV_MW_TYPE_1;
  return adopt(std::move(mw), mine(pd)->owner);
}

int SoftProvider::dealloc_mw(ibv_mw* mw) {
  return release(mw, [this](Mw& mine) { return card_.deallocate_window(mine.first_key); });
}

}  // namespace beeline::verbs::soft
