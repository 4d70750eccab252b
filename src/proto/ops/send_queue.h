// The send queue: work requests with their copied pieces and inline bytes, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/queue_pair.h"
#include "proto/ring.h"
#include "proto/types.h"

namespace beeline::proto {

struct SendRequest {
  std::uint64_t wr_id = 0;
  std::uint64_t remote_address = 0;
  // One past the sequence number of the last request posted before that is answered by data; 0: none.
  std::uint64_t reads_before = 0;
  std::span<const Sge> sges;  // into the queue's own store
  Bytes inline_bytes;         // likewise
  std::uint32_t length = 0;   // of the message
  std::uint32_t immediate = 0;
  Key rkey{};
  Key invalidate{};
  WrOpcode opcode{};
  bool signaled = false;
  bool solicited = false;
  bool fence = false;
  bool inline_data = false;
  bool placed = false;
};

// What only few operations have, apart from the request so that this stays small.
struct Operands {
  std::uint64_t compare = 0;
  std::uint64_t swap_or_add = 0;
  WindowBind bind;
};

// READ and the atomics: what acknowledges them is data.
constexpr bool answered_by_data(WrOpcode opcode) {
  return opcode == WrOpcode::read || opcode == WrOpcode::compare_swap || opcode == WrOpcode::fetch_add;
}
constexpr bool is_atomic(WrOpcode opcode) {
  return opcode == WrOpcode::compare_swap || opcode == WrOpcode::fetch_add;
}
// Carried out by this side alone.
constexpr bool is_local(WrOpcode opcode) {
  return opcode == WrOpcode::local_inv || opcode == WrOpcode::bind_mw;
}

// The completion that a work request gets.
Completion completion_of(const SendRequest& request, WcStatus status, Qpn qpn);

class SendQueue {
 public:
  SendQueue(QpType type, const QpLimits& limits);

  // `unpolled`: completions of this queue that still occupy places.
  PostResult post(const SendWr& wr, std::size_t unpolled);
  std::size_t room(std::size_t unpolled) const {
    const std::size_t taken = ring_.size() + unpolled;
    return taken < limits_.send_depth ? limits_.send_depth - taken : 0;
  }

  std::uint64_t head() const { return ring_.head(); }
  std::uint64_t tail() const { return ring_.tail(); }
  bool empty() const { return ring_.empty(); }
  std::size_t slot(std::uint64_t sequence) const { return ring_.slot(sequence); }
  std::size_t slots() const { return ring_.slots(); }
  const SendRequest& operator[](std::uint64_t sequence) const { return ring_[sequence]; }
  const SendRequest& front() const { return ring_.front(); }
  // Of a request that is an atomic or binds a window.
  const Operands& operands(std::uint64_t sequence) const { return operands_[slot(sequence)]; }
  // Of a request of a queue pair for datagrams.
  const DatagramTarget& target(std::uint64_t sequence) const { return targets_[slot(sequence)]; }
  void pop() { ring_.pop(); }
  void clear();

  // A fenced request starts when every READ and atomic posted before it is complete
  // (IBV_SEND_FENCE).
  bool fenced(std::uint64_t sequence) const {
    const SendRequest& request = ring_[sequence];
    return request.fence && request.reads_before > ring_.head();
  }

 private:
  PostResult admit(const SendWr& wr, std::uint64_t length, std::size_t unpolled) const;
  void keep_extras(std::size_t slot, const SendWr& wr);
  Bytes copy_inline(std::size_t slot, std::span<const Sge> sges);

  QpType type_;
  QpLimits limits_;
  Ring<SendRequest> ring_;
  std::vector<Sge> sges_;                // limits_.send_sges for every slot
  std::vector<std::byte> inline_store_;  // limits_.inline_bytes for every slot
  std::vector<Operands> operands_;       // by slot, for RC
  std::vector<DatagramTarget> targets_;  // by slot, for UD
  std::uint64_t last_read_ = 0;
};

}  // namespace beeline::proto
