// Where datagrams go.

#include <cerrno>

#include "verbs/soft/soft_provider.h"

namespace beeline::verbs::soft {

ibv_ah* SoftProvider::create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  if (!holds(pd) || attr->port_num != 1) return fail_null<ibv_ah>(EINVAL);
  const auto address = to_address(*attr);
  if (!address) return fail_null<ibv_ah>(note(address.error()));
  if (address_handles_.fetch_add(1) >= card_.limits().address_handles) {
    --address_handles_;
    return fail_null<ibv_ah>(ENOMEM);
  }
  const auto path = card_.resolve_path(mine(pd)->owner->device_index, *address);
  if (!path) {
    --address_handles_;
    return fail_null<ibv_ah>(note(path.error()));
  }
  auto ah = std::make_unique<Ah>();
  ah->pd = pd;
  ah->home = mine(pd);
  ah->path = *path;
  ++mine(pd)->address_handles;
  return adopt(std::move(ah), mine(pd)->owner);
}

int SoftProvider::destroy_ah(ibv_ah* ah) {
  return release(ah, [this](Ah& mine) -> Result<void> {
    --mine.home->address_handles;
    --address_handles_;
    return {};
  });
}

}  // namespace beeline::verbs::soft
