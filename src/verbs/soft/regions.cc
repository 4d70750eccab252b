// Protection domains and memory regions.

#include <cerrno>

#include "verbs/soft/soft_provider.h"

namespace beeline::verbs::soft {
namespace {

constexpr unsigned remote_writers = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

// 0, or why these are no rights of a region. Remote rights to write need local ones (ibv_reg_mr(3)).
int to_rights(unsigned flags, proto::Access& out) {
  const auto rights = to_access(flags);
  if (!rights) return EOPNOTSUPP;
  if ((flags & remote_writers) != 0 && (flags & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
  out = *rights;
  return 0;
}

std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uint64_t>(memory); }

int bad_input() {
  errno = EINVAL;
  return IBV_REREG_MR_ERR_INPUT;
}

}  // namespace

ibv_pd* SoftProvider::alloc_pd(ibv_context* context) {
  if (!holds(context)) return fail_null<ibv_pd>(EINVAL);
  const auto id = card_.create_domain();
  if (!id) return fail_null<ibv_pd>(note(id.error()));
  auto pd = std::make_unique<Pd>();
  pd->id = *id;
  pd->handle = id->value;
  return adopt(std::move(pd), context_of(context));
}

int SoftProvider::dealloc_pd(ibv_pd* pd) {
  return release(pd, [this](Pd& mine) -> Result<void> {
    if (mine.address_handles > 0)
      return fail(Errc::in_use, "the protection domain still has {} address handles: destroy those first",
                  mine.address_handles.load());
    return card_.destroy_domain(mine.id);
  });
}

ibv_mr* SoftProvider::reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) {
  return reg_mr_iova(pd, address, bytes, address_of(address), static_cast<unsigned>(access));
}

ibv_mr* SoftProvider::reg_mr_iova(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                                  unsigned access) {
  if (!holds(pd)) return fail_null<ibv_mr>(EINVAL);
  proto::Access rights{};
  if (const int error = to_rights(access, rights); error != 0) return fail_null<ibv_mr>(error);
  const auto keys = card_.register_region(mine(pd)->id, address, bytes, iova, rights);
  if (!keys) return fail_null<ibv_mr>(note(keys.error()));
  auto mr = std::make_unique<Mr>();
  mr->pd = pd;
  mr->addr = address;
  mr->length = bytes;
  mr->key = keys->lkey;
  mr->lkey = mr->handle = keys->lkey.value;
  mr->rkey = keys->rkey.value;
  return adopt(std::move(mr), mine(pd)->owner);
}

void* SoftProvider::allocate_memory(ibv_context* context, std::size_t bytes) {
  if (!holds(context)) return fail_null<void>(EINVAL);
  const auto memory = card_.allocate_memory(bytes);
  if (!memory) return fail_null<void>(note(memory.error()));
  return *memory;
}

int SoftProvider::free_memory(ibv_context* context, void* memory) {
  if (!holds(context)) return EINVAL;
  const auto freed = card_.free_memory(memory);
  return freed ? 0 : note(freed.error());
}

// The region is as it was whenever this fails: the codes for "do not use it any more" are not needed.
int SoftProvider::rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t bytes, int access) {
  if (!holds(mr) || flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0) return bad_input();
  nic::RegionChange change;
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) {
    if (!holds(pd) || mine(pd)->owner != mine(mr)->owner) return bad_input();
    change.domain = mine(pd)->id;
  }
  if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
    if (bytes == 0) return bad_input();
    change.range = {address, bytes, address_of(address)};
  }
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) {
    proto::Access rights{};
    if (const int error = to_rights(static_cast<unsigned>(access), rights); error != 0) {
      errno = error;
      return IBV_REREG_MR_ERR_INPUT;
    }
    change.access = rights;
  }
  const auto keys = card_.reregister_region(mine(mr)->key, change);
  if (!keys) {
    errno = note(keys.error());
    return IBV_REREG_MR_ERR_INPUT;
  }
  if (change.domain) mr->pd = pd;
  if (change.range) {
    mr->addr = address;
    mr->length = bytes;
  }
  mine(mr)->key = keys->lkey;
  mr->lkey = keys->lkey.value;
  mr->rkey = keys->rkey.value;
  return 0;
}

int SoftProvider::dereg_mr(ibv_mr* mr) {
  return release(mr, [this](Mr& mine) { return card_.deregister_region(mine.key); });
}

}  // namespace beeline::verbs::soft
