#include "proto/ops/executor.h"

#include "proto/ops/gather.h"

namespace beeline::proto {
namespace {

using wire::NakCode;

// A peer that may not touch a region learns so; a region that we cannot reach is our fault.
Verdict remote_refusal(MemoryStatus status) {
  return Verdict::nak(status == MemoryStatus::fault ? NakCode::remote_operation : NakCode::remote_access);
}

bool is_broken(const Fragment& fragment) {
  return fragment.source != nullptr && fragment.source->is_broken();
}

}  // namespace

Verdict Executor::execute(const Fragment& fragment, Access granted) {
  const auto kind = fragment.is_write ? Message::Kind::write : Message::Kind::send;
  const auto expected = fragment.first ? Message::Kind::none : kind;
  if (message_.kind != expected) return Verdict::nak(NakCode::invalid_request);
  const Verdict verdict = fragment.is_write ? write(fragment, granted) : send(fragment);
  if (verdict.kind == Verdict::Kind::ok) {
    message_.kind = kind;
    message_.done += fragment.bytes();
    if (fragment.last) message_ = {};
  }
  return verdict;
}

Verdict Executor::send(const Fragment& fragment) {
  const ReceiveRequest* receive = receives_.hold();
  if (receive == nullptr) return Verdict::not_ready();
  const std::uint64_t end = std::uint64_t{message_.done} + fragment.bytes();
  if (end > receive->length || end > max_message_bytes) return refuse_too_long();
  if (put(fragment, *receive) != MemoryStatus::ok)
    return is_broken(fragment) ? Verdict::broken()
                               : fail_receive(WcStatus::local_protection_error, NakCode::remote_operation);
  if (fragment.last && fragment.invalidates &&
      memory_.invalidate(domain_, qpn_, fragment.invalidate) != MemoryStatus::ok)
    return fail_receive(WcStatus::remote_invalid_request, NakCode::remote_access);
  if (fragment.last) complete_receive(fragment, WcOpcode::receive);
  return Verdict::ok(fragment.last);
}

MemoryStatus Executor::put(const Fragment& fragment, const ReceiveRequest& receive) {
  if (fragment.source == nullptr)
    return scatter(memory_, domain_, receive.sges, message_.done, fragment.payload);
  return scatter(memory_, domain_, receive.sges, message_.done, *fragment.source, fragment.source_bytes);
}

// A request from a shared queue cannot go back there, so it ends with an error in any case (as Linux's
// rdma_rxe has it).
Verdict Executor::refuse_too_long() {
  if (reliable_ || receives_.is_shared())
    return fail_receive(WcStatus::local_length_error, NakCode::invalid_request);
  return Verdict::nak(NakCode::invalid_request);
}

Verdict Executor::write(const Fragment& fragment, Access granted) {
  const bool needs_receive = fragment.last && fragment.has_immediate;
  if (fragment.first) {
    const Verdict verdict = begin_write(fragment, granted);
    if (verdict.kind != Verdict::Kind::ok) return verdict;
  }
  if (write_size_is_wrong(fragment)) return Verdict::nak(NakCode::invalid_request);
  if (needs_receive && receives_.hold() == nullptr) return Verdict::not_ready();
  if (fragment.bytes() != 0) {
    const std::uint64_t at = message_.address + message_.done;
    const MemoryStatus status =
        fragment.source == nullptr
            ? memory_.write(domain_, message_.rkey, at, fragment.payload, Access::remote_write)
            : memory_.fill(domain_, message_.rkey, at, fragment.source_bytes, Access::remote_write,
                           *fragment.source);
    if (status != MemoryStatus::ok)
      return is_broken(fragment) ? Verdict::broken() : refuse_write(fragment, status);
  }
  if (needs_receive) complete_receive(fragment, WcOpcode::receive_write_imm);
  return Verdict::ok(fragment.last);
}

Verdict Executor::begin_write(const Fragment& fragment, Access granted) {
  if (!allows(granted, Access::remote_write) || fragment.length > max_message_bytes)
    return Verdict::nak(NakCode::invalid_request);
  const MemoryStatus status =
      check_remote(fragment.rkey, fragment.remote_address, fragment.length, Access::remote_write);
  if (status != MemoryStatus::ok) return remote_refusal(status);
  // The kind stays `none` until the first piece has been executed: an RNR starts anew.
  message_.address = fragment.remote_address;
  message_.rkey = fragment.rkey;
  message_.length = fragment.length;
  message_.done = 0;
  return Verdict::ok(false);
}

// The key was good when the message began. Who waits for its immediate learns that the data could
// not be written (IBTA vol. 1, 11.6.2).
Verdict Executor::refuse_write(const Fragment& fragment, MemoryStatus status) {
  const Verdict verdict = remote_refusal(status);
  const bool awaited = reliable_ && fragment.last && fragment.has_immediate && receives_.hold() != nullptr;
  return awaited ? fail_receive(WcStatus::local_access_error, verdict.code) : verdict;
}

// Zero bytes need no valid key.
MemoryStatus Executor::check_remote(Key rkey, std::uint64_t address, std::uint32_t length, Access need) {
  if (length == 0) return MemoryStatus::ok;
  const MemoryStatus status = memory_.check_user(rkey, qpn_);
  return status == MemoryStatus::ok ? memory_.check(domain_, rkey, address, length, need) : status;
}

// The last piece ends exactly at the announced length, and no other piece does.
bool Executor::write_size_is_wrong(const Fragment& fragment) const {
  const std::uint64_t left = message_.length - message_.done;
  return fragment.last ? fragment.bytes() != left : fragment.bytes() >= left;
}

Verdict Executor::check_read(std::uint64_t address, Key rkey, std::uint32_t length, Access granted) {
  if (!allows(granted, Access::remote_read) || length > max_message_bytes)
    return Verdict::nak(NakCode::invalid_request);
  const MemoryStatus status = check_remote(rkey, address, length, Access::remote_read);
  return status == MemoryStatus::ok ? Verdict::ok(true) : remote_refusal(status);
}

Verdict Executor::atomic(const AtomicRequest& request, Access granted, std::uint64_t& before) {
  if (!allows(granted, Access::remote_atomic) || request.address % 8 != 0)
    return Verdict::nak(NakCode::invalid_request);
  MemoryStatus status = memory_.check_user(request.rkey, qpn_);
  if (status == MemoryStatus::ok)
    status = memory_.atomic(domain_, request.rkey, request.address, request.operation, request.compare,
                            request.swap_or_add, before);
  return status == MemoryStatus::ok ? Verdict::ok(true) : remote_refusal(status);
}

Verdict Executor::fail_receive(WcStatus status, NakCode code) {
  Completion completion;
  completion.status = status;
  completion.opcode = WcOpcode::receive;
  receives_.complete(completion);
  return Verdict::nak(code, true);
}

void Executor::complete_receive(const Fragment& fragment, WcOpcode opcode) {
  Completion completion;
  completion.opcode = opcode;
  completion.has_immediate = fragment.has_immediate;
  completion.solicited = fragment.solicited;
  completion.immediate = fragment.has_immediate ? fragment.immediate : 0;
  completion.has_invalidated = fragment.invalidates;
  completion.invalidated = fragment.invalidate;
  completion.byte_length = message_.done + fragment.bytes();
  receives_.complete(completion);
}

}  // namespace beeline::proto
