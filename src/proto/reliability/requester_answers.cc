// The requester's receiving side: ACKs, NAKs, answers with data, and time.

#include <algorithm>
#include <bit>

#include "proto/ops/gather.h"
#include "proto/ops/rnr_timer.h"
#include "proto/reliability/requester.h"
#include "proto/reliability/segmentation.h"
#include "wire/packet.h"

namespace beeline::proto {

// How many packets after `acked_` this PSN lies, if it was sent and is not yet acknowledged.
// Everything else is stale or forged.
std::optional<std::uint32_t> Requester::offset_in_flight(Psn psn) const {
  const std::int32_t offset = distance(psn, psn_at(acked_));
  if (offset < 0 || offset >= distance(psn_at(high_), psn_at(acked_))) return std::nullopt;
  return static_cast<std::uint32_t>(offset);
}

void Requester::handle_response(TimePoint now, const wire::PacketView& packet) {
  const auto offset = operations_.can_send() ? offset_in_flight(packet.headers.bth.psn) : std::nullopt;
  if (!offset) {
    ++counters_.dropped_packets;
    // A READ that was asked for twice is answered twice, and what we wait for comes behind that. To take this
    // for silence would ask for everything once more, and so for ever.
    if (operations_.can_send() && packet.info->kind == wire::Kind::read_response) timer_.heard(now);
    return;
  }
  if (packet.info->kind != wire::Kind::acknowledge) return handle_data(now, *offset, packet);
  const wire::Aeth& aeth = packet.headers.aeth;
  switch (aeth.kind()) {
    case wire::AckKind::ack:
      return handle_ack(now, *offset);
    case wire::AckKind::nak:
      return handle_nak(now, *offset, aeth.value());
    case wire::AckKind::rnr_nak:
      return handle_rnr(now, *offset, aeth.value());
    case wire::AckKind::reserved:
      ++counters_.dropped_packets;
  }
}

void Requester::handle_ack(TimePoint now, std::uint32_t offset) {
  if (!acknowledge(now, offset + 1)) go_back_once(now);
}

// A NAK names the packet that was refused and acknowledges all before it.
void Requester::handle_nak(TimePoint now, std::uint32_t offset, std::uint8_t code) {
  if (code > static_cast<std::uint8_t>(wire::NakCode::remote_operation)) {
    ++counters_.dropped_packets;
    return;
  }
  ++counters_.naks_received;
  if (!acknowledge(now, offset)) return go_back_once(now);
  if (!operations_.can_send()) return;
  if (wire::NakCode{code} == wire::NakCode::psn_sequence) return go_back_for_nak(now);
  operations_.fail_send(status_of(wire::NakCode{code}));
}

void Requester::handle_rnr(TimePoint now, std::uint32_t offset, std::uint8_t timer) {
  ++counters_.rnr_naks_received;
  if (waiting_for_receiver_ && now < wait_until_ && offset == 0) return;  // a duplicate of the one we obey
  if (!acknowledge(now, offset)) return go_back_once(now);
  if (!operations_.can_send()) return;
  if (operations_.attributes().rnr_retry != 7) {
    if (rnr_retries_left_ == 0) return operations_.fail_send(WcStatus::rnr_retry_exceeded);
    --rnr_retries_left_;
  }
  rewind();
  waiting_for_receiver_ = true;
  wait_until_ = now + rnr_wait(timer);
  timer_.stop();  // the peer lives: only the wait counts
}

// READ responses and the answers of atomics.
void Requester::handle_data(TimePoint now, std::uint32_t offset, const wire::PacketView& packet) {
  // It acknowledges everything before it, but a READ or atomic before it that lacks data
  // means that answers were lost (an implied NAK).
  if (!acknowledge(now, offset)) {
    ++counters_.out_of_sequence_packets;
    return go_back_once(now);
  }
  if (!operations_.can_send()) return;
  // At this PSN nothing else can have been asked for: the peer is mistaken (IBTA vol. 1, 9.9.2.3).
  if (!is_awaited(packet)) return operations_.fail_send(WcStatus::bad_response);
  if (packet.info->kind == wire::Kind::read_response) return take_data(now, packet.payload);
  // A number on the wire, and in memory as this machine writes numbers.
  const auto before = std::bit_cast<std::array<std::byte, 8>>(packet.headers.atomic_before);
  take_data(now, before);
}

// Whether this answer is the next one of the oldest request. Pieces and resumed READs may
// begin and end anywhere, except that the last packet of all ends a response.
bool Requester::is_awaited(const wire::PacketView& packet) const {
  const SendRequest& request = operations_.sends().front();
  if (packet.info->has_aeth && packet.headers.aeth.kind() != wire::AckKind::ack) return false;
  if (packet.info->kind == wire::Kind::atomic_acknowledge) return is_atomic(request.opcode);
  if (request.opcode != WrOpcode::read) return false;
  if (packet.payload.size() != packet_bytes(request.length, mtu_, acked_.packet)) return false;
  return packet.info->ends_message() || acked_.packet + 1 < plan(acked_.sequence).packets;
}

void Requester::take_data(TimePoint now, Bytes data) {
  const SendRequest& request = operations_.sends().front();
  if (scatter(operations_.memory(), operations_.domain(), request.sges, acked_.packet * mtu_, data) !=
      MemoryStatus::ok)
    return operations_.fail_send(WcStatus::local_protection_error);
  counters_.bytes_received += data.size();
  acknowledge_in_head(1);
  note_progress(now);
}

// Acknowledges `packets` packets; false if an unfinished READ or atomic stands in the way.
bool Requester::acknowledge(TimePoint now, std::uint32_t packets) {
  const Position before = acked_;
  while (packets != 0 && !answered_by_data(operations_.sends().front().opcode)) {
    const std::uint32_t step = std::min(packets, plan(acked_.sequence).packets - acked_.packet);
    acknowledge_in_head(step);
    packets -= step;
  }
  if (acked_ != before) note_progress(now);
  return packets == 0;
}

void Requester::acknowledge_in_head(std::uint32_t packets) {
  const Position next = advanced(acked_, packets);
  if (next.sequence != acked_.sequence) operations_.complete_send();
  acked_ = next;
}

void Requester::note_progress(TimePoint now) {
  const bool in_flight = cursor_ > acked_;
  cursor_ = std::max(cursor_, acked_);
  went_back_ = false;
  waiting_for_receiver_ = false;
  rnr_retries_left_ = operations_.attributes().rnr_retry;
  const std::uint64_t charge = charge_at(acked_);
  loss_window_.note_acknowledged(charge - charge_acknowledged_, charge_at(high_) - charge_acknowledged_,
                                 window_bytes_);
  charge_acknowledged_ = charge;
  while (!reads_.empty() && reads_.front() <= charge) reads_.pop();
  if (round_trip_.running && round_trip_.until <= acked_) {
    timer_.sample(now - round_trip_.sent_at);
    round_trip_.running = false;
  }
  timer_.progress(now, in_flight);
  settle_failure();
}

// Many answers report the same gap; one round of retransmission is enough for all of them.
void Requester::go_back_once(TimePoint now) {
  if (!went_back_) go_back(now);
}

// A peer that says so a round trip later has missed the packet again.
void Requester::go_back_for_nak(TimePoint now) {
  if (!went_back_ || now - went_back_at_ > timer_.shortest_round_trip()) go_back(now);
}

void Requester::go_back(TimePoint now) {
  if (!operations_.can_send()) return;
  loss_window_.note_loss(in_flight());
  rewind();
  went_back_ = true;
  went_back_at_ = now;
}

// Should trains be numbered otherwise on the way than they are here, only the first packet of each arrives.
void Requester::rewind() {
  cursor_ = acked_;
  repeat_alone_ = distance(psn_at(acked_), rewound_to_) < 2;
  rewound_to_ = psn_at(acked_);
  reads_.clear();
  charge_since_ack_request_ = 0;
  round_trip_.running = false;
}

void Requester::handle_timeout(TimePoint now) {
  if (!operations_.can_send()) return;
  if (waiting_for_receiver_ && wait_until_ <= now) waiting_for_receiver_ = false;
  if (timer_.deadline() > now) return;
  ++counters_.timeouts;
  timer_.expire(now);
  if (timer_.given_up(now)) return operations_.fail_send(WcStatus::retry_exceeded);
  rewind();
  went_back_ = false;
  repeat_alone_ = true;
  timer_.back_off(now);
}

TimePoint Requester::next_timeout() const {
  if (!operations_.can_send()) return TimePoint::never();
  return waiting_for_receiver_ ? wait_until_ : timer_.deadline();
}

}  // namespace beeline::proto
