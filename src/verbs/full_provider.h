// Everything that libibverbs exports and a program may call, for the card in software. Beeline's own
// layers need the smaller Provider only; this is for programs of others (src/preload).
//
// Conventions of libibverbs throughout: NULL and errno, or an errno value, or -1 and errno, as the
// function's manual page says. What a program hands in is checked first: an object that is not a live one
// of this provider is EINVAL, never a crash. Functions that <infiniband/verbs.h> calls through
// struct ibv_context (ibv_create_cq_ex, ibv_alloc_mw, ibv_post_srq_recv, …) are in the tables there.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "verbs/provider.h"

namespace beeline::verbs {

class FullProvider : public Provider {
 public:
  // Whether a context, or an object that hangs on one, is of this provider. `object` may be anything.
  virtual bool owns_device(const ibv_device* device) = 0;
  virtual bool owns(const void* object) = 0;

  // Closes a device as a program of others may: whatever was made from it and is still there goes first, in
  // the order that works, and events that were not acknowledged count as if they were. (With hardware the
  // kernel does that.) perftest, for one, leaves things behind.
  virtual int close_device_with_all(ibv_context* context) = 0;

  virtual int get_device_index(ibv_device* device) = 0;
  virtual int query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* out) = 0;
  virtual int query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* out) = 0;
  virtual int get_pkey_index(ibv_context* context, std::uint8_t port, __be16 pkey) = 0;
  virtual ssize_t query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t max_entries,
                                  std::uint32_t flags, std::size_t entry_bytes) = 0;

  // `access` may carry bits of IBV_ACCESS_OPTIONAL_RANGE (dropped) and IBV_ACCESS_ZERO_BASED.
  virtual ibv_mr* reg_mr_iova(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                              unsigned access) = 0;
  virtual int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t bytes, int access) = 0;

  virtual int resize_cq(ibv_cq* cq, int cqe) = 0;

  virtual ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) = 0;
  virtual int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) = 0;
  virtual int query_srq(ibv_srq* srq, ibv_srq_attr* out) = 0;
  virtual int destroy_srq(ibv_srq* srq) = 0;

  virtual ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) = 0;
  virtual int destroy_ah(ibv_ah* ah) = 0;

  virtual ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) = 0;

  // Blocks as O_NONBLOCK on context->async_fd says. 0, or -1 and errno.
  virtual int get_async_event(ibv_context* context, ibv_async_event* out) = 0;
  virtual void ack_async_event(ibv_async_event* event) = 0;
};

// The software card behind struct ibv_*. `card` outlives the provider.
std::unique_ptr<FullProvider> make_full_soft_provider(nic::Card& card);

}  // namespace beeline::verbs
