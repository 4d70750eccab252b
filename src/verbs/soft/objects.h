// The verbs objects of the software card: what applications hold as struct ibv_*, and
// the object of the card behind each.
#pragma once

#include <atomic>

#include "nic/card.h"
#include "verbs/common/context_shell.h"
#include "verbs/common/device_shell.h"
#include "verbs/common/events.h"

namespace beeline::verbs::soft {

struct Device : DeviceShell {
  int index = 0;  // into Card::devices()
};

struct Context : ContextShell {
  using ContextShell::ContextShell;
  nic::Card* card = nullptr;
  const nic::Device* home = nullptr;
  int device_index = 0;
  std::atomic<int> objects{0};  // everything made from it that still lives
};

struct Pd : ibv_pd {
  PdId id;
};

struct Mr : ibv_mr {};

struct Cq : EventedCq {
  nic::CompletionQueue* queue = nullptr;
};

struct Qp : ibv_qp {
  nic::QueuePair* pair = nullptr;
  ibv_qp_init_attr init{};
};

inline Context* context_of(ibv_context* context) {
  return static_cast<Context*>(ContextShell::from(context));
}

// The functions that <infiniband/verbs.h> calls through struct ibv_context.
extern const ContextOps context_ops;

// data_path.cc
int poll_cq(ibv_cq* cq, int count, ibv_wc* out);
int req_notify_cq(ibv_cq* cq, int solicited_only);
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);

// query.cc
int query_device(ibv_context* context, ibv_device_attr* out);
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out);
int query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* out);

}  // namespace beeline::verbs::soft
