// A struct ibv_context that unmodified programs can use: the last member of a struct
// verbs_context of its announced size, with every function that <infiniband/verbs.h>
// calls without a check present.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace beeline::verbs {

// What a provider fills in; the rest answers EOPNOTSUPP, as the header expects.
struct ContextOps {
  int (*query_device)(ibv_context*, ibv_device_attr*);
  int (*query_port)(ibv_context*, std::uint8_t, ibv_port_attr*);
  int (*poll_cq)(ibv_cq*, int, ibv_wc*);
  int (*req_notify_cq)(ibv_cq*, int);
  int (*post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr**);
  int (*post_recv)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**);
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

 private:
  // The application counts back from `context`, so only `self` may follow it.
  struct Frame {
    verbs_context verbs{};
    ContextShell* self = nullptr;
  };
  Frame frame_;
  const ContextOps* ops_;
};

}  // namespace beeline::verbs
