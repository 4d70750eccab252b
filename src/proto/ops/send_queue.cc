#include "proto/ops/send_queue.h"

#include <algorithm>
#include <cstring>

#include "proto/ops/gather.h"

namespace beeline::proto {

Completion completion_of(const SendRequest& request, WcStatus status, Qpn qpn) {
  Completion completion;
  completion.wr_id = request.wr_id;
  completion.status = status;
  completion.qpn = qpn;
  switch (request.opcode) {
    case WrOpcode::send:
    case WrOpcode::send_imm:
    case WrOpcode::send_inv:
      completion.opcode = WcOpcode::send;
      break;
    case WrOpcode::write:
    case WrOpcode::write_imm:
      completion.opcode = WcOpcode::write;
      break;
    case WrOpcode::read:
      completion.opcode = WcOpcode::read;
      completion.byte_length = request.length;
      break;
    case WrOpcode::compare_swap:
      completion.opcode = WcOpcode::compare_swap;
      completion.byte_length = request.length;
      break;
    case WrOpcode::fetch_add:
      completion.opcode = WcOpcode::fetch_add;
      completion.byte_length = request.length;
      break;
    case WrOpcode::bind_mw:
      completion.opcode = WcOpcode::bind_mw;
      break;
    case WrOpcode::local_inv:
      completion.opcode = WcOpcode::local_inv;
      break;
  }
  return completion;
}

namespace {

constexpr std::uint32_t bit(WrOpcode opcode) { return 1u << static_cast<unsigned>(opcode); }

// The operations of a type of queue pair, by QpType (IBTA vol. 1, table 21).
constexpr std::uint32_t sends_only = bit(WrOpcode::send) | bit(WrOpcode::send_imm);
constexpr std::uint32_t offered[] = {
    bit(WrOpcode::bind_mw) * 2 - 1,                                // RC: all
    sends_only | bit(WrOpcode::write) | bit(WrOpcode::write_imm),  // UC
    sends_only,                                                    // UD
};

// Bytes that go out with the request; the others bring bytes in, or have none.
constexpr bool carries_data(WrOpcode opcode) { return !answered_by_data(opcode) && !is_local(opcode); }

constexpr std::uint64_t atomic_bytes = 8;

}  // namespace

SendQueue::SendQueue(QpType type, const QpLimits& limits)
    : type_(type),
      limits_(limits),
      ring_(limits.send_depth),
      sges_(ring_.slots() * limits.send_sges),
      inline_store_(ring_.slots() * limits.inline_bytes),
      operands_(type == QpType::rc ? ring_.slots() : 0),
      targets_(type == QpType::ud ? ring_.slots() : 0) {}

PostResult SendQueue::admit(const SendWr& wr, std::uint64_t length, std::size_t unpolled) const {
  if (wr.opcode > WrOpcode::bind_mw || (offered[static_cast<std::size_t>(type_)] & bit(wr.opcode)) == 0)
    return PostResult::invalid;
  if (type_ == QpType::ud && wr.target == nullptr) return PostResult::invalid;
  if (wr.opcode == WrOpcode::bind_mw && wr.bind == nullptr) return PostResult::invalid;
  if (is_local(wr.opcode) && !wr.sges.empty()) return PostResult::invalid;
  if (wr.sges.size() > limits_.send_sges) return PostResult::too_many_sges;
  if (is_atomic(wr.opcode) && length != atomic_bytes) return PostResult::invalid;
  if (length > max_message_bytes) return PostResult::too_long;
  if (wr.inline_data && (length > limits_.inline_bytes || !carries_data(wr.opcode)))
    return PostResult::inline_too_long;
  if (ring_.size() + unpolled >= limits_.send_depth) return PostResult::queue_full;
  return PostResult::ok;
}

PostResult SendQueue::post(const SendWr& wr, std::size_t unpolled) {
  const std::uint64_t length = total_length(wr.sges);
  if (const PostResult result = admit(wr, length, unpolled); result != PostResult::ok) return result;
  const std::uint64_t sequence = ring_.tail();
  const std::size_t slot = ring_.slot(sequence);
  SendRequest& request = ring_.push();
  request = {};
  request.wr_id = wr.wr_id;
  request.remote_address = wr.remote_address;
  request.reads_before = last_read_;
  request.length = static_cast<std::uint32_t>(length);
  request.immediate = wr.immediate;
  request.rkey = wr.rkey;
  request.invalidate = wr.invalidate;
  request.opcode = wr.opcode;
  request.signaled = wr.signaled || limits_.signal_all;
  request.solicited = wr.solicited;
  request.fence = wr.fence;
  request.inline_data = wr.inline_data;
  request.placed = wr.placed;
  if (wr.inline_data) {
    request.inline_bytes = copy_inline(slot, wr.sges);
  } else {
    const std::span<Sge> store = std::span(sges_).subspan(slot * limits_.send_sges, wr.sges.size());
    std::copy(wr.sges.begin(), wr.sges.end(), store.begin());
    request.sges = store;
  }
  if (answered_by_data(wr.opcode)) last_read_ = sequence + 1;
  keep_extras(slot, wr);
  return PostResult::ok;
}

void SendQueue::keep_extras(std::size_t slot, const SendWr& wr) {
  if (type_ == QpType::ud) targets_[slot] = *wr.target;
  if (is_atomic(wr.opcode)) {
    operands_[slot].compare = wr.compare;
    operands_[slot].swap_or_add = wr.swap_or_add;
  }
  if (wr.opcode == WrOpcode::bind_mw) operands_[slot].bind = *wr.bind;
}

Bytes SendQueue::copy_inline(std::size_t slot, std::span<const Sge> sges) {
  const MutableBytes store =
      std::span(inline_store_).subspan(slot * limits_.inline_bytes, limits_.inline_bytes);
  std::size_t used = 0;
  for (const Sge& sge : sges) {
    if (sge.length == 0) continue;
    // Inline data is the poster's own memory, named by plain address.
    std::memcpy(store.data() + used, reinterpret_cast<const void*>(sge.address), sge.length);
    used += sge.length;
  }
  return store.first(used);
}

void SendQueue::clear() {
  ring_.clear();
  last_read_ = 0;
}

}  // namespace beeline::proto
