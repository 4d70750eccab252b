#include "proto/local/requester.h"

#include <algorithm>
#include <cstring>

#include "proto/local/patience.h"
#include "proto/ops/gather.h"

namespace beeline::proto::local {
namespace {

// Of whose process has ended, there is no doubt.
constexpr Duration longest_grace = 1s;

WcStatus status_of(Answer answer) {
  switch (answer) {
    case Answer::invalid_request:
      return WcStatus::remote_invalid_request;
    case Answer::remote_access:
      return WcStatus::remote_access_error;
    case Answer::not_ready:
      return WcStatus::rnr_retry_exceeded;
    case Answer::source_fault:
      return WcStatus::local_protection_error;
    default:
      return WcStatus::remote_operation_error;
  }
}

// A READ's bytes on their way from the other process.
class Fetch final : public ByteSource {
 public:
  Fetch(PeerMemory& peer, std::uint64_t address) : peer_(peer), address_(address) {}
  bool fetch(MutableBytes to) override {
    const PeerMemory::Copied copied = peer_.read(address_, to);
    broken_ = copied == PeerMemory::Copied::there;
    address_ += to.size();
    return copied == PeerMemory::Copied::ok;
  }
  bool is_broken() const override { return broken_; }

 private:
  PeerMemory& peer_;
  std::uint64_t address_;
  bool broken_ = false;
};

}  // namespace

Requester::Requester(Operations& operations, Direction& requests, const SideLine& theirs, SideLine& ours,
                     PeerMemory& peer)
    : operations_(operations),
      requests_(requests),
      theirs_(theirs),
      ours_(ours),
      peer_(peer),
      sequence_(operations.sends().head()) {}

bool Requester::run(TimePoint now) {
  bool published = take_answers(now);
  published |= fill(now);
  if (filled_ == taken_ && !lost_) patience_ends_ = TimePoint::never();
  return published;
}

bool Requester::take_answers(TimePoint now) {
  const bool published = take_new_answers(now);
  settle_failure();
  return published;
}

bool Requester::has_answer() const {
  return theirs_.executed.load(std::memory_order_relaxed) != hint_executed_.load(std::memory_order_relaxed) ||
         theirs_.offered.load(std::memory_order_relaxed) != hint_offered_.load(std::memory_order_relaxed);
}

// --- Taking answers

// True when the other side has something to see: bytes of a READ were fetched.
bool Requester::take_new_answers(TimePoint now) {
  const std::uint64_t word = theirs_.executed.load(std::memory_order_acquire);
  // In error, too: what was looked at is no news any more.
  hint_executed_.store(word, std::memory_order_relaxed);
  hint_offered_.store(theirs_.offered.load(std::memory_order_relaxed), std::memory_order_relaxed);
  if (!operations_.can_send() || gone_) return false;
  if (word != seen_) {
    seen_ = word;
    // The count is the peer's to write: it cannot go back, nor be ahead of what was asked.
    const std::uint64_t count = word >> 8;
    if (count < taken_ || count > filled_) {
      broken_protocol();
      return false;
    }
    if (count != taken_ && !lost_) patience_ends_ = now + patience();
    while (taken_ != count) {
      const Piece piece = pieces_[index(taken_)];
      if (!take(piece)) return false;
      ++taken_;
    }
    const auto answer = static_cast<Answer>(word & 0xFF);
    if (answer != Answer::ok && !take_failure(answer)) return false;
  }
  return !lost_ && fetch(now);
}

// False when it ends in an error.
bool Requester::take(const Piece& piece) {
  if (piece.sequence != operations_.sends().head()) {
    broken_protocol();
    return false;
  }
  const SendRequest& request = operations_.sends().front();
  if (answered_by_data(request.opcode) && piece.carry != Carry::by_offer) {
    const Bytes data = std::span(requests_.payloads[index(taken_)]).first(piece.bytes);
    if (!take_data(piece, data)) return false;
  }
  // Whoever says that a READ is done whose bytes we have not fetched is mad.
  if (piece.carry == Carry::by_offer) {
    if (!fetching_ || fetched_bytes_ != piece.bytes) {
      broken_protocol();
      return false;
    }
    fetching_ = false;
    fetched_bytes_ = 0;
  }
  if (piece.last) operations_.complete_send();
  return true;
}

bool Requester::take_data(const Piece& piece, Bytes data) {
  const SendRequest& request = operations_.sends().front();
  bytes_read_ += data.size();
  if (scatter(operations_.memory(), operations_.domain(), request.sges, piece.offset, data) ==
      MemoryStatus::ok)
    return true;
  operations_.fail_send(WcStatus::local_protection_error);
  return false;
}

bool Requester::take_failure(Answer answer) {
  if (taken_ == filled_) {
    broken_protocol();
  } else {
    operations_.fail_send(status_of(answer));
  }
  return false;
}

// A large READ whose bytes the other side offers. In steps, so that no lock is held for long.
bool Requester::fetch(TimePoint now) {
  const std::uint64_t offered = theirs_.offered.load(std::memory_order_acquire);
  hint_offered_.store(offered, std::memory_order_relaxed);
  if (taken_ == filled_ || offered != taken_ + 1) return false;
  const Piece& piece = pieces_[index(taken_)];
  if (piece.carry != Carry::by_offer || fetched_bytes_ == piece.bytes) return false;
  if (!fetching_) {
    std::memcpy(&offer_, requests_.payloads[index(taken_)].data(), sizeof offer_);
    fetching_ = true;
    fetched_bytes_ = 0;
  }
  const std::uint32_t bytes = std::min(step_bytes, piece.bytes - fetched_bytes_);
  Fetch source(peer_, offer_.address + fetched_bytes_);
  const SendRequest& request = operations_.sends().front();
  const MemoryStatus status = scatter(operations_.memory(), operations_.domain(), request.sges,
                                      piece.offset + fetched_bytes_, source, bytes);
  if (status != MemoryStatus::ok) {
    fetching_ = false;
    operations_.fail_send(source.is_broken() ? WcStatus::remote_operation_error
                                             : WcStatus::local_protection_error);
    return false;
  }
  fetched_bytes_ += bytes;
  bytes_read_ += bytes;
  patience_ends_ = now + patience();
  ours_.heartbeat.fetch_add(1, std::memory_order_relaxed);
  if (fetched_bytes_ != piece.bytes) return false;
  ours_.fetched.store(taken_ + 1, std::memory_order_release);
  return true;
}

void Requester::broken_protocol() { give_up(); }

void Requester::lose_peer(TimePoint now) {
  if (lost_) return;
  lost_ = true;
  fetching_ = false;
  patience_ends_ = now + grace();
}

void Requester::give_up() {
  gone_ = true;
  fetching_ = false;
  patience_ends_ = TimePoint::never();
  if (operations_.can_send() && !operations_.sends().empty()) operations_.fail_send(WcStatus::retry_exceeded);
}

// --- Filling the ring

bool Requester::fill(TimePoint now) {
  if (gone_) {
    give_up();
    return false;
  }
  if (lost_) return false;
  bool published = false;
  const std::uint64_t before = filled_;
  while (operations_.can_send() && !failed_ && sequence_ != operations_.sends().tail() &&
         filled_ - taken_ != slot_count) {
    const SendRequest& request = operations_.sends()[sequence_];
    if (offset_ == 0) {
      if (!may_begin(request)) break;
      if (is_local(request.opcode)) {
        operations_.run_local();
        ++sequence_;
        continue;
      }
      if (!begin(request)) break;
    }
    if (!fill_piece(request)) break;
    published = true;
  }
  if (published && before == taken_) patience_ends_ = now + patience();
  return published;
}

bool Requester::may_begin(const SendRequest& request) {
  if (!operations_.may_begin() || operations_.sends().fenced(sequence_)) return false;
  return !is_local(request.opcode) || sequence_ == operations_.sends().head();
}

bool Requester::begin(const SendRequest& request) {
  // What is copied in one piece is checked as it is copied.
  if (request.length <= piece_bytes && !answered_by_data(request.opcode)) return true;
  const WcStatus status = operations_.check_send(request);
  if (status != WcStatus::success) note_failed(status);
  return status == WcStatus::success;
}

bool Requester::fill_piece(const SendRequest& request) {
  Slot& slot = requests_.slots[index(filled_)];
  Piece piece;
  piece.sequence = sequence_;
  piece.offset = offset_;
  const std::uint32_t left = request.length - offset_;
  piece.bytes = std::min(left, piece_bytes);
  const Reach reach = request.length > piece_bytes ? peer_.reach() : Reach{};
  const bool direct = request.length > reach.direct_above_bytes;
  if (request.opcode == WrOpcode::read) {
    if (direct && reach.we_read_peers) {
      piece.carry = Carry::by_offer;
      piece.bytes = left;
    }
  } else if (is_atomic(request.opcode)) {
    const Operands& operands = operations_.sends().operands(sequence_);
    slot.operands = {operands.compare, operands.swap_or_add};
  } else if (request.placed) {
    piece.carry = Carry::placed;
    piece.bytes = left;
  } else if (direct && reach.peer_reads_ours && piece.offset == 0 && name_sources(request)) {
    piece.carry = Carry::by_source;
    piece.bytes = left;
  } else if (!fill_data(request, slot, piece)) {
    note_failed(WcStatus::local_protection_error);
    return false;
  }
  piece.last = piece.offset + piece.bytes == request.length;
  fill_header(request, slot, piece);
  pieces_[index(filled_)] = piece;
  slot.turn.store(turn_of(filled_), std::memory_order_release);
  ++filled_;
  if (!answered_by_data(request.opcode)) bytes_sent_ += piece.bytes;
  offset_ = piece.last ? 0 : piece.offset + piece.bytes;
  if (piece.last) ++sequence_;
  return true;
}

void Requester::fill_header(const SendRequest& request, Slot& slot, const Piece& piece) {
  slot.opcode = request.opcode;
  slot.flags =
      static_cast<std::uint8_t>((piece.offset == 0 ? flag::first : 0) | (piece.last ? flag::last : 0) |
                                (request.solicited ? flag::solicited : 0));
  slot.carry = piece.carry;
  slot.rnr_retry = operations_.attributes().rnr_retry;
  slot.length = request.length;
  slot.bytes = piece.bytes;
  slot.remote_address = request.remote_address + (request.opcode == WrOpcode::read ? piece.offset : 0);
  slot.rkey = request.rkey;
  slot.immediate = request.opcode == WrOpcode::send_inv ? request.invalidate.value : request.immediate;
}

bool Requester::fill_data(const SendRequest& request, Slot& slot, Piece& piece) {
  if (piece.bytes == 0) return true;
  piece.carry = piece.bytes <= header_payload ? Carry::in_header : Carry::in_slot;
  MutableBytes out = piece.carry == Carry::in_header ? MutableBytes(slot.payload)
                                                     : MutableBytes(requests_.payloads[index(filled_)]);
  out = out.first(piece.bytes);
  if (request.inline_data) {
    std::memcpy(out.data(), request.inline_bytes.data() + piece.offset, out.size());
    return true;
  }
  std::array<MemoryRef, max_sge> refs;
  const std::uint8_t count = gather(request.sges, piece.offset, piece.bytes, Access::none, refs);
  for (const MemoryRef& ref : std::span(refs).first(count)) {
    if (operations_.memory().read(operations_.domain(), ref.key, ref.address, out.first(ref.length),
                                  ref.need) != MemoryStatus::ok)
      return false;
    out = out.subspan(ref.length);
  }
  return true;
}

// The pieces of the message as the other process can read them: max_sge of them, the rest empty.
bool Requester::name_sources(const SendRequest& request) {
  std::array<Source, max_sge> sources{};
  std::size_t count = 0;
  for (const Sge& sge : request.sges) {
    if (sge.length == 0) continue;
    Source& source = sources[count++];
    source.bytes = sge.length;
    if (operations_.memory().locate(operations_.domain(), sge.lkey, sge.address, sge.length, Access::none,
                                    source.address) != MemoryStatus::ok)
      return false;
  }
  std::memcpy(requests_.payloads[index(filled_)].data(), sources.data(), sizeof sources);
  return true;
}

void Requester::note_failed(WcStatus status) {
  failed_ = status;
  settle_failure();
}

// Completions stay in order.
void Requester::settle_failure() {
  if (!failed_ || !operations_.can_send() || sequence_ != operations_.sends().head()) return;
  // Pieces of it that are under way are nobody's any more.
  operations_.fail_send(*failed_);
  failed_.reset();
}

// --- Patience

Duration Requester::patience() const {
  const QpAttr& attributes = operations_.attributes();
  return attributes.timeout == 0 ? Duration::zero() : local::patience(attributes);
}

Duration Requester::grace() const {
  const QpAttr& attributes = operations_.attributes();
  return attributes.timeout == 0 ? longest_grace
                                 : std::min<Duration>(local::wire_patience(attributes), longest_grace);
}

TimePoint Requester::next_timeout() const {
  if (gone_) return TimePoint::never();
  if (lost_)
    return operations_.can_send() && !operations_.sends().empty() ? patience_ends_ : TimePoint::never();
  const bool waits = operations_.can_send() && filled_ != taken_ && operations_.attributes().timeout != 0;
  return waits ? patience_ends_ : TimePoint::never();
}

void Requester::handle_timeout(TimePoint now) {
  if (next_timeout() > now) return;
  if (lost_) return give_up();
  const std::uint32_t heartbeat = theirs_.heartbeat.load(std::memory_order_relaxed);
  const bool waits = theirs_.waits.load(std::memory_order_relaxed) != 0;
  // A receiver that is not ready says when patience is at its end, unless it has none.
  if (heartbeat == heartbeat_ && !(waits && operations_.attributes().rnr_retry == 7)) return give_up();
  heartbeat_ = heartbeat;
  patience_ends_ = now + patience();
}

}  // namespace beeline::proto::local
