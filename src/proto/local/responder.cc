#include "proto/local/responder.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "proto/ops/rnr_timer.h"

namespace beeline::proto::local {
namespace {

using wire::NakCode;

Answer answer_of(NakCode code) {
  switch (code) {
    case NakCode::remote_access:
      return Answer::remote_access;
    case NakCode::remote_operation:
      return Answer::remote_operation;
    default:
      return Answer::invalid_request;
  }
}

bool is_data(WrOpcode opcode) {
  return opcode <= WrOpcode::send_inv && !answered_by_data(opcode) && !is_local(opcode);
}

// A message's bytes on their way from the other process. What comes after the other side has closed is
// nobody's: its memory may be somebody else's by now.
class Fetch final : public ByteSource {
 public:
  Fetch(PeerMemory& peer, const SideLine& theirs, std::span<const Source> sources, std::uint64_t offset)
      : peer_(peer), theirs_(theirs), sources_(sources), offset_(offset) {
    while (!sources_.empty() && offset_ >= sources_.front().bytes) step();
  }

  bool fetch(MutableBytes to) override {
    while (!to.empty()) {
      if (sources_.empty()) return fail();
      const Source& source = sources_.front();
      const std::size_t bytes = std::min<std::uint64_t>(to.size(), source.bytes - offset_);
      const PeerMemory::Copied copied = peer_.read(source.address + offset_, to.first(bytes));
      if (copied == PeerMemory::Copied::there) return fail();
      if (copied == PeerMemory::Copied::here) return false;
      to = to.subspan(bytes);
      offset_ += bytes;
      while (!sources_.empty() && offset_ >= sources_.front().bytes) step();
    }
    return theirs_.closed.load(std::memory_order_acquire) == 0 || fail();
  }
  bool is_broken() const override { return broken_; }

 private:
  void step() {
    offset_ -= sources_.front().bytes;
    sources_ = sources_.subspan(1);
  }
  bool fail() {
    broken_ = true;
    return false;
  }

  PeerMemory& peer_;
  const SideLine& theirs_;
  std::span<const Source> sources_;
  std::uint64_t offset_;
  bool broken_ = false;
};

// Bytes that are where they are to go.
class InPlace final : public ByteSource {
 public:
  bool fetch(MutableBytes) override { return true; }
  bool is_broken() const override { return false; }
};

}  // namespace

Responder::Responder(Operations& operations, Direction& requests, const SideLine& theirs, SideLine& ours,
                     PeerMemory& peer)
    : operations_(operations), requests_(requests), theirs_(theirs), ours_(ours), peer_(peer) {}

bool Responder::has_request() const {
  const std::uint64_t n = hint_executed_.load(std::memory_order_relaxed);
  switch (hint_wait_.load(std::memory_order_relaxed)) {
    case Wait::request:
      return requests_.slots[index(n)].turn.load(std::memory_order_relaxed) == turn_of(n);
    case Wait::fetching:
      return theirs_.fetched.load(std::memory_order_relaxed) == n + 1;
    default:
      return false;
  }
}

bool Responder::run(TimePoint now, Requester& own) {
  const std::uint64_t before = executed_;
  const bool offered_before = offered_;
  bool fetched = false;
  more_ = false;
  Outcome outcome = Outcome::done;
  for (int i = 0; outcome == Outcome::done && !ended_; ++i) {
    if (i == step_requests) {
      more_ = true;
      break;
    }
    if (!operations_.can_receive() || !take_request()) break;
    fetched |= own.take_answers(now);
    if (!operations_.can_receive()) break;
    outcome = serve(now);
    if (outcome != Outcome::done) break;
    taken_ = false;
    ++executed_;
  }
  more_ |= outcome == Outcome::unfinished;
  if (executed_ != before) {
    hint_executed_.store(executed_, std::memory_order_relaxed);
    if (outcome != Outcome::ended)
      ours_.executed.store(executed_word(executed_, Answer::ok), std::memory_order_release);
  }
  hint_wait_.store(ended_ || !operations_.can_receive() ? Wait::nothing
                   : outcome != Outcome::waits          ? Wait::request
                   : waits_                             ? Wait::receive
                                                        : Wait::fetching,
                   std::memory_order_relaxed);
  return fetched || executed_ != before || outcome == Outcome::ended || (offered_ && !offered_before);
}

// Copies the header of the next request, when it is there.
bool Responder::take_request() {
  if (taken_) return true;
  const Slot& slot = requests_.slots[index(executed_)];
  if (slot.turn.load(std::memory_order_acquire) != turn_of(executed_)) return false;
  request_.opcode = slot.opcode;
  request_.flags = slot.flags;
  request_.carry = slot.carry;
  request_.rnr_retry = slot.rnr_retry;
  request_.length = slot.length;
  request_.bytes = slot.bytes;
  request_.remote_address = slot.remote_address;
  request_.rkey = slot.rkey;
  request_.immediate = slot.immediate;
  std::memcpy(request_.payload.data(), slot.payload.data(), header_payload);
  taken_ = true;
  fetched_ = 0;
  offered_ = false;
  not_ready_ = 0;
  operations_.note_request();
  return true;
}

Responder::Outcome Responder::serve(TimePoint now) {
  if (request_.opcode == WrOpcode::read) return serve_read();
  if (is_data(request_.opcode) && request_.carry == Carry::by_source) return serve_sourced(now);
  if (is_data(request_.opcode) && request_.carry == Carry::placed) return serve_placed(now);
  if (is_data(request_.opcode)) return serve_data(now);
  if (request_.opcode == WrOpcode::compare_swap || request_.opcode == WrOpcode::fetch_add)
    return serve_atomic();
  return obey(Verdict::nak(NakCode::invalid_request), now);
}

Fragment Responder::fragment() const {
  Fragment fragment;
  fragment.is_write = request_.opcode == WrOpcode::write || request_.opcode == WrOpcode::write_imm;
  fragment.first = (request_.flags & flag::first) != 0;
  fragment.last = (request_.flags & flag::last) != 0;
  fragment.has_immediate = request_.opcode == WrOpcode::send_imm || request_.opcode == WrOpcode::write_imm;
  fragment.solicited = (request_.flags & flag::solicited) != 0;
  fragment.invalidates = request_.opcode == WrOpcode::send_inv;
  if (fragment.has_immediate) fragment.immediate = request_.immediate;
  if (fragment.invalidates) fragment.invalidate = Key{request_.immediate};
  fragment.remote_address = request_.remote_address;
  fragment.rkey = request_.rkey;
  fragment.length = request_.length;
  return fragment;
}

Responder::Outcome Responder::serve_data(TimePoint now) {
  const std::uint32_t most = request_.carry == Carry::in_header ? header_payload
                             : request_.carry == Carry::in_slot ? piece_bytes
                                                                : 0;
  if (request_.bytes > most) return obey(Verdict::nak(NakCode::invalid_request), now);
  Fragment piece = fragment();
  const Bytes store = request_.carry == Carry::in_header ? Bytes(request_.payload)
                                                         : Bytes(requests_.payloads[index(executed_)]);
  piece.payload = store.first(request_.bytes);
  const Verdict verdict = operations_.executor().execute(piece, operations_.attributes().access);
  if (verdict.kind == Verdict::Kind::ok) bytes_received_ += request_.bytes;
  return obey(verdict, now);
}

// A whole message, step by step.
Responder::Outcome Responder::serve_sourced(TimePoint now) {
  const Fragment whole = fragment();
  if (!whole.first || !whole.last || request_.bytes != request_.length || request_.length == 0)
    return obey(Verdict::nak(NakCode::invalid_request), now);
  if (fetched_ == 0)
    std::memcpy(sources_.data(), requests_.payloads[index(executed_)].data(), sizeof sources_);
  Fragment piece = whole;
  piece.first = fetched_ == 0;
  piece.source_bytes = std::min(step_bytes, request_.length - fetched_);
  piece.last = fetched_ + piece.source_bytes == request_.length;
  Fetch source(peer_, theirs_, sources_, fetched_);
  piece.source = &source;
  const Verdict verdict = operations_.executor().execute(piece, operations_.attributes().access);
  if (verdict.kind != Verdict::Kind::ok) return obey(verdict, now);
  stop_waiting();
  bytes_received_ += piece.source_bytes;
  fetched_ += piece.source_bytes;
  ours_.heartbeat.fetch_add(1, std::memory_order_relaxed);
  return piece.last ? Outcome::done : Outcome::unfinished;
}

// Whoever claims it of bytes that it has not stored has written what was there before: it may write anything.
Responder::Outcome Responder::serve_placed(TimePoint now) {
  Fragment whole = fragment();
  if (!whole.is_write || !whole.first || !whole.last || request_.bytes != request_.length ||
      request_.length == 0)
    return obey(Verdict::nak(NakCode::invalid_request), now);
  InPlace source;
  whole.source = &source;
  whole.source_bytes = request_.bytes;
  const Verdict verdict = operations_.executor().execute(whole, operations_.attributes().access);
  if (verdict.kind == Verdict::Kind::ok) bytes_received_ += request_.bytes;
  return obey(verdict, now);
}

Responder::Outcome Responder::serve_read() {
  if (offered_) return offer();
  const bool fits = request_.carry == Carry::by_offer || request_.bytes <= piece_bytes;
  if (!fits || operations_.attributes().max_dest_rd_atomic == 0 || operations_.executor().in_message())
    return obey(Verdict::nak(NakCode::invalid_request), {});
  // The first piece asks for all of them: nothing is read when the whole is not allowed.
  const bool first = (request_.flags & flag::first) != 0;
  const Verdict verdict = operations_.executor().check_read(
      request_.remote_address, request_.rkey,
      first ? std::max(request_.length, request_.bytes) : request_.bytes, operations_.attributes().access);
  if (verdict.kind != Verdict::Kind::ok) return obey(verdict, {});
  if (request_.bytes == 0) return Outcome::done;
  if (request_.carry == Carry::by_offer) return offer();
  const MutableBytes out = MutableBytes(requests_.payloads[index(executed_)]).first(request_.bytes);
  if (operations_.memory().read(operations_.domain(), request_.rkey, request_.remote_address, out,
                                Access::remote_read) != MemoryStatus::ok)
    return obey(Verdict::nak(NakCode::remote_operation), {});
  bytes_read_ += request_.bytes;
  return Outcome::done;
}

// Says where the bytes lie; once they are copied, looks whether they were there to be read all the time: a
// key that is gone never comes back to the same memory unnoticed, because keys are random.
Responder::Outcome Responder::offer() {
  if (offered_ && theirs_.fetched.load(std::memory_order_acquire) != executed_ + 1) return Outcome::waits;
  Source where;
  where.bytes = request_.bytes;
  if (operations_.memory().locate(operations_.domain(), request_.rkey, request_.remote_address,
                                  request_.bytes, Access::remote_read, where.address) != MemoryStatus::ok)
    return obey(Verdict::nak(NakCode::remote_operation), {});
  if (offered_) {
    if (where.address != offered_address_) return obey(Verdict::nak(NakCode::remote_operation), {});
    bytes_read_ += request_.bytes;
    return Outcome::done;
  }
  offered_ = true;
  offered_address_ = where.address;
  std::memcpy(requests_.payloads[index(executed_)].data(), &where, sizeof where);
  ours_.offered.store(executed_ + 1, std::memory_order_release);
  return Outcome::waits;
}

Responder::Outcome Responder::serve_atomic() {
  if (operations_.attributes().max_dest_rd_atomic == 0 || operations_.executor().in_message())
    return obey(Verdict::nak(NakCode::invalid_request), {});
  std::array<std::uint64_t, 2> operands;
  std::memcpy(operands.data(), request_.payload.data(), sizeof operands);
  const AtomicOp operation =
      request_.opcode == WrOpcode::fetch_add ? AtomicOp::fetch_add : AtomicOp::compare_swap;
  std::uint64_t before = 0;
  const Verdict verdict = operations_.executor().atomic(
      {operation, request_.remote_address, request_.rkey, operands[0], operands[1]},
      operations_.attributes().access, before);
  if (verdict.kind == Verdict::Kind::ok)
    std::memcpy(requests_.payloads[index(executed_)].data(), &before, sizeof before);
  return obey(verdict, {});
}

Responder::Outcome Responder::obey(const Verdict& verdict, TimePoint now) {
  switch (verdict.kind) {
    case Verdict::Kind::ok:
      stop_waiting();
      return Outcome::done;
    case Verdict::Kind::rnr:
      return wait_for_receive(now);
    case Verdict::Kind::broken:
      return end(Answer::source_fault);
    case Verdict::Kind::nak:
      break;
  }
  const Outcome outcome = end(answer_of(verdict.code));
  operations_.refuse(verdict);
  return outcome;
}

// A receive request that is posted to this queue pair tells of itself. Time is needed for who gives up one
// day, and for a queue that others share. Nobody waits any more for a requester that has gone.
TimePoint Responder::next_timeout() const {
  const bool needed =
      operations_.can_receive() && waits_ && (request_.rnr_retry < 7 || operations_.receives().is_shared());
  return needed && theirs_.closed.load(std::memory_order_relaxed) == 0 ? wait_until_ : TimePoint::never();
}

// The requester would ask again each time that the timer has run down (IBTA vol. 1, 9.7.5.2.8). Here it
// need not: a receive request that is posted earlier is used at once.
Responder::Outcome Responder::wait_for_receive(TimePoint now) {
  if (waits_ && now < wait_until_) return Outcome::waits;
  if (request_.rnr_retry < 7 && not_ready_++ >= request_.rnr_retry) {
    stop_waiting();
    return end(Answer::not_ready);
  }
  waits_ = true;
  wait_until_ = now + rnr_wait(operations_.attributes().min_rnr_timer);
  ours_.heartbeat.fetch_add(1, std::memory_order_relaxed);
  ours_.waits.store(1, std::memory_order_relaxed);
  return Outcome::waits;
}

void Responder::stop_waiting() {
  if (!waits_) return;
  waits_ = false;
  not_ready_ = 0;
  ours_.waits.store(0, std::memory_order_relaxed);
}

Responder::Outcome Responder::end(Answer answer) {
  ended_ = true;
  ours_.executed.store(executed_word(executed_, answer), std::memory_order_release);
  return Outcome::ended;
}

}  // namespace beeline::proto::local
