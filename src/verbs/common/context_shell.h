// A struct ibv_context that unmodified programs can use: the last member of a struct
// verbs_context of its announced size, with every function that <infiniband/verbs.h>
// calls without a check present.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "verbs/common/async_events.h"

namespace beeline::verbs {

// What a provider fills in; what it leaves out answers EOPNOTSUPP, as the header expects.
struct ContextOps {
  int (*query_device)(ibv_context*, ibv_device_attr*);
  int (*query_port)(ibv_context*, std::uint8_t, ibv_port_attr*);
  int (*poll_cq)(ibv_cq*, int, ibv_wc*);
  int (*req_notify_cq)(ibv_cq*, int);
  int (*post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr**);
  int (*post_recv)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**);

  int (*post_srq_recv)(ibv_srq*, ibv_recv_wr*, ibv_recv_wr**) = nullptr;
  ibv_mw* (*alloc_mw)(ibv_pd*, ibv_mw_type) = nullptr;
  int (*bind_mw)(ibv_qp*, ibv_mw*, ibv_mw_bind*) = nullptr;
  int (*dealloc_mw)(ibv_mw*) = nullptr;
  ibv_cq_ex* (*create_cq_ex)(ibv_context*, ibv_cq_init_attr_ex*) = nullptr;
  ibv_qp* (*create_qp_ex)(ibv_context*, ibv_qp_init_attr_ex*) = nullptr;
};

class ContextShell {
 public:
  // `ops` outlives the shell.
  ContextShell(ibv_device* device, const ContextOps& ops);
  virtual ~ContextShell();
  ContextShell(const ContextShell&) = delete;
  ContextShell& operator=(const ContextShell&) = delete;

  // False with errno set when descriptors have run out.
  bool open();

  ibv_context* get() { return &frame_.verbs.context; }
  static ContextShell* from(ibv_context* context);
  const ContextOps& ops() const { return *ops_; }
  AsyncEvents& async_events() { return async_events_; }

 private:
  // The application counts back from `context`, so only `self` may follow it.
  struct Frame {
    verbs_context verbs{};
    ContextShell* self = nullptr;
  };
  Frame frame_;
  const ContextOps* ops_;
  // What the application sees as cmd_fd and async_fd.
  int cmd_fd_ = -1;
  int async_fd_ = -1;
  AsyncEvents async_events_;
};

}  // namespace beeline::verbs
