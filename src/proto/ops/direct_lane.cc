#include "proto/ops/direct_lane.h"

#include <algorithm>
#include <bit>

#include "proto/ops/gather.h"
#include "proto/ops/rnr_timer.h"

namespace beeline::proto {

DirectLane::DirectLane(Operations& first, Operations& second)
    : directions_{{{first, second}, {second, first}}} {}

bool DirectLane::run(TimePoint now) {
  bool any = false;
  for (Direction& direction : directions_) any |= run(direction, now);
  return any;
}

TimePoint DirectLane::next_timeout() const {
  TimePoint next = TimePoint::never();
  for (const Direction& direction : directions_)
    if (direction.waiting && direction.from.can_send()) next = std::min(next, direction.wait_until);
  return next;
}

bool DirectLane::run(Direction& direction, TimePoint now) {
  bool any = false;
  while (direction.from.can_send() && !direction.from.sends().empty()) {
    if (direction.waiting && now < direction.wait_until) break;
    if (!direction.from.may_begin() && !direction.in_request()) break;
    const SendQueue& sends = direction.from.sends();
    if (direction.sequence != sends.head()) {
      direction.sequence = sends.head();
      direction.done = 0;
      direction.not_ready = 0;
    }
    direction.waiting = false;
    any = true;
    if (is_local(sends.front().opcode)) {
      direction.from.run_local();
      continue;
    }
    if (!carry(direction, sends.front(), now)) break;
    direction.from.complete_send();
  }
  if (!direction.in_request()) direction.from.note_idle();
  return any;
}

// True when the request is complete; false when it waits or has failed.
bool DirectLane::carry(Direction& direction, const SendRequest& request, TimePoint now) {
  Operations& from = direction.from;
  if (const WcStatus status = from.check_send(request); status != WcStatus::success) {
    from.fail_send(status);
    return false;
  }
  if (!direction.to.can_receive()) {
    from.fail_send(WcStatus::retry_exceeded);  // nobody answers
    return false;
  }
  direction.to.note_request();
  if (request.opcode == WrOpcode::read) return carry_read(direction, request);
  if (is_atomic(request.opcode)) return carry_atomic(direction, request);
  return carry_data(direction, request, now);
}

bool DirectLane::carry_data(Direction& direction, const SendRequest& request, TimePoint now) {
  Fragment fragment;
  fragment.is_write = request.opcode == WrOpcode::write || request.opcode == WrOpcode::write_imm;
  fragment.has_immediate = request.opcode == WrOpcode::send_imm || request.opcode == WrOpcode::write_imm;
  fragment.solicited = request.solicited;
  fragment.immediate = request.immediate;
  fragment.invalidates = request.opcode == WrOpcode::send_inv;
  fragment.invalidate = request.invalidate;
  fragment.remote_address = request.remote_address;
  fragment.rkey = request.rkey;
  fragment.length = request.length;
  do {
    const std::size_t bytes = std::min<std::size_t>(buffer_.size(), request.length - direction.done);
    const MutableBytes piece = std::span(buffer_).first(bytes);
    if (!load(direction.from, request, direction.done, piece)) {
      direction.from.fail_send(WcStatus::local_protection_error);
      return false;
    }
    fragment.first = direction.done == 0;
    fragment.last = direction.done + bytes == request.length;
    fragment.payload = piece;
    const Verdict verdict = direction.to.executor().execute(fragment, direction.to.attributes().access);
    if (!obey(direction, verdict, now)) return false;
    direction.done += static_cast<std::uint32_t>(bytes);
  } while (direction.done != request.length);
  return true;
}

bool DirectLane::load(Operations& from, const SendRequest& request, std::uint32_t offset, MutableBytes out) {
  if (request.inline_data) {
    std::copy_n(request.inline_bytes.begin() + offset, out.size(), out.begin());
    return true;
  }
  std::array<MemoryRef, max_sge> refs;
  const std::uint8_t count =
      gather(request.sges, offset, static_cast<std::uint32_t>(out.size()), Access::none, refs);
  for (const MemoryRef& ref : std::span(refs).first(count)) {
    if (from.memory().read(from.domain(), ref.key, ref.address, out.first(ref.length), ref.need) !=
        MemoryStatus::ok)
      return false;
    out = out.subspan(ref.length);
  }
  return true;
}

bool DirectLane::carry_read(Direction& direction, const SendRequest& request) {
  Operations& from = direction.from;
  Operations& to = direction.to;
  Verdict verdict = to.attributes().max_dest_rd_atomic == 0
                        ? Verdict::nak(wire::NakCode::invalid_request)
                        : to.executor().check_read(request.remote_address, request.rkey, request.length,
                                                   to.attributes().access);
  for (std::uint32_t done = 0; verdict.kind == Verdict::Kind::ok && done != request.length;) {
    const std::uint32_t bytes = std::min(static_cast<std::uint32_t>(buffer_.size()), request.length - done);
    const MutableBytes piece = std::span(buffer_).first(bytes);
    if (to.memory().read(to.domain(), request.rkey, request.remote_address + done, piece,
                         Access::remote_read) != MemoryStatus::ok) {
      verdict = Verdict::nak(wire::NakCode::remote_operation);
    } else if (scatter(from.memory(), from.domain(), request.sges, done, piece) != MemoryStatus::ok) {
      from.fail_send(WcStatus::local_protection_error);
      return false;
    }
    done += bytes;
  }
  return obey(direction, verdict, TimePoint{});  // a READ needs no receive request: never RNR
}

bool DirectLane::carry_atomic(Direction& direction, const SendRequest& request) {
  Operations& from = direction.from;
  Operations& to = direction.to;
  const Operands& operands = from.sends().operands(from.sends().head());
  const AtomicOp operation =
      request.opcode == WrOpcode::fetch_add ? AtomicOp::fetch_add : AtomicOp::compare_swap;
  std::uint64_t before = 0;
  const Verdict verdict = to.attributes().max_dest_rd_atomic == 0
                              ? Verdict::nak(wire::NakCode::invalid_request)
                              : to.executor().atomic({operation, request.remote_address, request.rkey,
                                                      operands.compare, operands.swap_or_add},
                                                     to.attributes().access, before);
  if (!obey(direction, verdict, TimePoint{})) return false;
  const auto bytes = std::bit_cast<std::array<std::byte, 8>>(before);
  if (scatter(from.memory(), from.domain(), request.sges, 0, bytes) == MemoryStatus::ok) return true;
  from.fail_send(WcStatus::local_protection_error);
  return false;
}

bool DirectLane::obey(Direction& direction, const Verdict& verdict, TimePoint now) {
  switch (verdict.kind) {
    case Verdict::Kind::ok:
      return true;
    case Verdict::Kind::nak:
      direction.to.refuse(verdict);
      direction.from.fail_send(status_of(verdict.code));
      return false;
    case Verdict::Kind::broken:  // this lane's bytes are there
    case Verdict::Kind::rnr:
      break;
  }
  const std::uint8_t allowed = direction.from.attributes().rnr_retry;
  if (allowed != 7 && direction.not_ready++ == allowed) {
    direction.from.fail_send(WcStatus::rnr_retry_exceeded);
  } else {
    direction.waiting = true;
    direction.wait_until = now + rnr_wait(direction.to.attributes().min_rnr_timer);
  }
  return false;
}

}  // namespace beeline::proto
