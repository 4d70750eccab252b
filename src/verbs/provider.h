// Where verbs come from. A provider offers the functions that libibverbs exports, under
// their libibverbs signatures and error conventions (NULL and errno, or an errno value);
// the inline ones (ibv_post_send, ibv_poll_cq, ibv_req_notify_cq) reach it through the
// ops table in struct ibv_context, as in any verbs program. Everything above this
// folder uses a Provider and struct ibv_*, and cannot tell hardware from software.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <memory>
#include <string>

#include "nic/card.h"

namespace beeline::verbs {

class Provider {
 public:
  virtual ~Provider() = default;
  virtual const char* name() const = 0;  // "soft", "system", …
  // Of the provider that a device of its list comes from, where several are joined. For people.
  virtual const char* provider_name(ibv_device*) { return name(); }
  // The sentence behind the errno of this thread's last failure, once; empty when there is none.
  virtual std::string why() { return {}; }

  virtual ibv_device** get_device_list(int* count) = 0;
  virtual void free_device_list(ibv_device** list) = 0;
  virtual const char* get_device_name(ibv_device* device) = 0;
  virtual __be64 get_device_guid(ibv_device* device) = 0;
  virtual ibv_context* open_device(ibv_device* device) = 0;
  virtual int close_device(ibv_context* context) = 0;
  virtual int query_device(ibv_context* context, ibv_device_attr* out) = 0;
  virtual int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out) = 0;
  virtual int query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                           ibv_gid_entry* out) = 0;

  virtual ibv_pd* alloc_pd(ibv_context* context) = 0;
  virtual int dealloc_pd(ibv_pd* pd) = 0;
  virtual ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) = 0;
  virtual int dereg_mr(ibv_mr* mr) = 0;

  // Memory that is best for peers to WRITE to: zeroed whole pages, one piece for each peer. The bytes of a
  // WRITE may be there before what its peer has posted earlier is executed; completions come in order.
  // nullptr, and errno 0: any memory is as good. Deregister it before freeing it.
  virtual void* allocate_memory(ibv_context*, std::size_t) {
    errno = 0;
    return nullptr;
  }
  virtual int free_memory(ibv_context*, void*) { return EINVAL; }

  virtual ibv_comp_channel* create_comp_channel(ibv_context* context) = 0;
  virtual int destroy_comp_channel(ibv_comp_channel* channel) = 0;
  virtual ibv_cq* create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                            int vector) = 0;
  virtual int destroy_cq(ibv_cq* cq) = 0;
  virtual int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) = 0;
  virtual void ack_cq_events(ibv_cq* cq, unsigned count) = 0;

  virtual ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) = 0;
  virtual int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) = 0;
  virtual int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) = 0;
  virtual int destroy_qp(ibv_qp* qp) = 0;
  // Does data of one WRITE land in address order (so that a flag behind it may be polled)?
  virtual int query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode op, std::uint32_t flags) = 0;
  // Of a WRITE of at most one page: does its last word (8 bytes, aligned) land last, and fast enough for the
  // receiver to look for it? To be asked once messages have gone both ways.
  virtual bool writes_last_word_last(ibv_qp* qp) {
    return query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0) == 1;
  }
};

// The software card behind struct ibv_*. `card` outlives the provider.
std::unique_ptr<Provider> make_soft_provider(nic::Card& card);

}  // namespace beeline::verbs
