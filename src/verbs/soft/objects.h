// The verbs objects of the software card: what applications hold as struct ibv_*, and the object of the card
// behind each. Programs write into the public fields, so nothing here relies on them after creation.
#pragma once

#include <atomic>
#include <memory>

#include "nic/card.h"
#include "verbs/common/async_events.h"
#include "verbs/common/context_shell.h"
#include "verbs/common/device_shell.h"
#include "verbs/common/events.h"
#include "verbs/soft/registry.h"

namespace beeline::verbs::soft {

class SoftProvider;
class WorkBuilder;

// Posting and polling take no lock to learn whether an object is alive: they look for this word. Memory
// of the dead is kept for a while (graveyard.h), so that looking is allowed.
template <std::uint32_t Word>
class Alive {
 public:
  explicit operator bool() const { return word_.load(std::memory_order_relaxed) == Word; }
  void end() { word_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> word_{Word};
};

struct Device : DeviceShell {
  int index = 0;  // into Card::devices()
};

struct Context : ContextShell {
  using ContextShell::ContextShell;
  SoftProvider* provider = nullptr;
  nic::Card* card = nullptr;
  int device_index = 0;
  std::atomic<int> objects{0};  // everything made from it that still lives
  AsyncSource port_events{AsyncSource::Port{1}};

  nic::Device device() const { return card->device(device_index); }  // as it is now
};

struct Pd : ibv_pd {
  static constexpr Kind kind = Kind::domain;
  Context* owner = nullptr;
  PdId id;
  std::atomic<int> address_handles{0};
};

struct Mr : ibv_mr {
  static constexpr Kind kind = Kind::region;
  Context* owner = nullptr;
  Key key{};
};

struct Channel : EventChannel {
  static constexpr Kind kind = Kind::channel;
  using EventChannel::EventChannel;
  Context* owner = nullptr;
};

struct Cq : EventedCq {
  static constexpr Kind kind = Kind::completion_queue;
  Alive<0xC0C0'A11Fu> alive;
  Context* owner = nullptr;
  nic::Card* card = nullptr;
  nic::CompletionQueue* queue = nullptr;
  Channel* reports_to = nullptr;
  AsyncSource async{static_cast<ibv_cq*>(this)};

  // Between start_poll and end_poll (cq_ex.cc).
  std::mutex polling;
  std::atomic<bool> is_polled{false};
  proto::Completion current;
};

struct Srq : ibv_srq {
  static constexpr Kind kind = Kind::shared_queue;
  Alive<0x5A5A'A11Fu> alive;
  Context* owner = nullptr;
  nic::Card* card = nullptr;
  Pd* home = nullptr;
  nic::SharedQueue* queue = nullptr;
  std::uint32_t depth = 0, sges = 0;
  AsyncSource async{static_cast<ibv_srq*>(this)};
};

struct Ah : ibv_ah {
  static constexpr Kind kind = Kind::address_handle;
  Alive<0xA4A4'A11Fu> alive;
  Context* owner = nullptr;
  Pd* home = nullptr;
  proto::Path path;
};

struct Mw : ibv_mw {
  static constexpr Kind kind = Kind::window;
  Alive<0x3434'A11Fu> alive;
  Context* owner = nullptr;
  Pd* home = nullptr;
  Key first_key{};
  bool is_type_1 = false;
};

struct Qp : ibv_qp_ex {
  static constexpr Kind kind = Kind::queue_pair;
  Alive<0x9B9B'A11Fu> alive;
  Context* owner = nullptr;
  nic::Card* card = nullptr;
  Pd* home = nullptr;
  mutable std::atomic<const ibv_ah*> known_ah{nullptr};  // the last one that was posted with
  nic::QueuePair* pair = nullptr;
  proto::QpType service{};
  bool has_shared_queue = false;
  ibv_qp_init_attr init{};               // as granted
  std::unique_ptr<WorkBuilder> builder;  // of ibv_wr_*, where that was asked for
  AsyncSource async{&qp_base};
};

inline Context* context_of(ibv_context* context) {
  return static_cast<Context*>(ContextShell::from(context));
}
inline Pd* mine(ibv_pd* pd) { return static_cast<Pd*>(pd); }
inline Mr* mine(ibv_mr* mr) { return static_cast<Mr*>(mr); }
inline Cq* mine(ibv_cq* cq) { return static_cast<Cq*>(cq); }
inline Srq* mine(ibv_srq* srq) { return static_cast<Srq*>(srq); }
inline Ah* mine(ibv_ah* ah) { return static_cast<Ah*>(ah); }
inline Mw* mine(ibv_mw* mw) { return static_cast<Mw*>(mw); }
inline Channel* mine(ibv_comp_channel* channel) { return static_cast<Channel*>(channel); }
// struct ibv_qp_ex begins with its struct ibv_qp.
inline Qp* mine(ibv_qp* qp) { return static_cast<Qp*>(reinterpret_cast<ibv_qp_ex*>(qp)); }
inline Cq* mine(ibv_cq_ex* cq) { return mine(reinterpret_cast<ibv_cq*>(cq)); }

// The functions that <infiniband/verbs.h> calls through struct ibv_context.
extern const ContextOps context_ops;

// query.cc
int query_device(ibv_context* context, ibv_device_attr* out);
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out);
int query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* out);

// data_path.cc
int poll_cq(ibv_cq* cq, int count, ibv_wc* out);
int req_notify_cq(ibv_cq* cq, int solicited_only);
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);

// cq_ex.cc: fills the functions of a struct ibv_cq_ex.
void extend(Cq& cq);

}  // namespace beeline::verbs::soft
