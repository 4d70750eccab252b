#include "proto/reliability/responder.h"

#include <algorithm>

#include "proto/reliability/segmentation.h"
#include "wire/packet.h"

namespace beeline::proto {
namespace {

using wire::NakCode;

ReadJob job_of(const wire::Headers& headers, std::uint32_t mtu, std::uint32_t msn) {
  ReadJob job;
  job.first_psn = headers.bth.psn;
  job.packets = packet_count(headers.reth.length, mtu);
  job.address = headers.reth.address;
  job.rkey = headers.reth.rkey;
  job.length = headers.reth.length;
  job.msn = msn;
  return job;
}

ReadJob atomic_job_of(const wire::Headers& headers, std::uint32_t msn, std::uint64_t before) {
  ReadJob job;
  job.first_psn = headers.bth.psn;
  job.packets = 1;
  job.address = headers.atomic.address;
  job.rkey = headers.atomic.rkey;
  job.length = sizeof before;
  job.msn = msn;
  job.atomic = true;
  job.before = before;
  return job;
}

bool is_answered_by_data(wire::Kind kind) {
  return kind == wire::Kind::read_request || kind == wire::Kind::atomic_request;
}

}  // namespace

void Responder::start() {
  stop();
  expected_ = operations_.attributes().rq_psn;
  msn_ = 0;
}

void Responder::stop() {
  reads_.clear();
  atomics_.clear();
  nak_.reset();
  refusal_.reset();
  hold_.reset();
  gap_reported_ = ack_pending_ = ack_repeated_ = last_words_ = false;
}

void Responder::handle_request(TimePoint now, const wire::PacketView& packet) {
  if (!operations_.can_receive()) return answer_in_error(packet.headers.bth.psn);
  const std::int32_t ahead = distance(packet.headers.bth.psn, expected_);
  if (ahead == 0) return execute(now, packet);
  if (ahead < 0) return repeat(packet);
  report_gap(packet.headers.bth.psn);
}

// Nothing is executed any more. But the NAK that says why may have been lost: the packet that
// it refused gets it again, so that the peer learns the reason and not only a time-out.
void Responder::answer_in_error(Psn psn) {
  if (refusal_ && refusal_->psn == psn) {
    nak_ = refusal_;
    last_words_ = true;
  } else {
    ++counters_.dropped_packets;
  }
}

void Responder::execute(TimePoint now, const wire::PacketView& packet) {
  const Psn psn = packet.headers.bth.psn;
  const QpAttr& attributes = operations_.attributes();
  if (!wire::payload_fits(*packet.info, packet.payload.size(), attributes.path_mtu_bytes))
    return refuse(Verdict::nak(NakCode::invalid_request), psn);
  const Verdict verdict = perform(packet);
  switch (verdict.kind) {
    case Verdict::Kind::ok:
      return accept(now, packet, verdict.ends_message);
    case Verdict::Kind::broken:  // a packet's bytes are there
    case Verdict::Kind::rnr:
      return report_not_ready();
    case Verdict::Kind::nak:
      return refuse(verdict, psn);
  }
}

Verdict Responder::perform(const wire::PacketView& packet) {
  switch (packet.info->kind) {
    case wire::Kind::read_request:
      return accept_read(packet);
    case wire::Kind::atomic_request:
      return accept_atomic(packet);
    default:
      return operations_.executor().execute(fragment_of(packet), operations_.attributes().access);
  }
}

Verdict Responder::accept_read(const wire::PacketView& packet) {
  const QpAttr& attributes = operations_.attributes();
  const wire::Reth& reth = packet.headers.reth;
  Executor& executor = operations_.executor();
  if (executor.in_message()) return Verdict::nak(NakCode::invalid_request);
  const Verdict verdict = executor.check_read(reth.address, reth.rkey, reth.length, attributes.access);
  if (verdict.kind != Verdict::Kind::ok) return verdict;
  if (!reads_.has_room(attributes.max_dest_rd_atomic)) return Verdict::nak(NakCode::invalid_request);
  reads_.add_new(job_of(packet.headers, attributes.path_mtu_bytes, (msn_ + 1) & Psn::mask));
  return verdict;
}

Verdict Responder::accept_atomic(const wire::PacketView& packet) {
  const QpAttr& attributes = operations_.attributes();
  const wire::AtomicEth& atomic = packet.headers.atomic;
  Executor& executor = operations_.executor();
  if (executor.in_message() || !reads_.has_room(attributes.max_dest_rd_atomic))
    return Verdict::nak(NakCode::invalid_request);
  const bool adds = packet.info->opcode == wire::Opcode::rc_fetch_add;
  std::uint64_t before = 0;
  const Verdict verdict = executor.atomic({adds ? AtomicOp::fetch_add : AtomicOp::compare_swap,
                                           atomic.address, atomic.rkey, atomic.compare, atomic.swap_or_add},
                                          attributes.access, before);
  if (verdict.kind != Verdict::Kind::ok) return verdict;
  atomics_.add(packet.headers.bth.psn, before);
  reads_.add_new(atomic_job_of(packet.headers, (msn_ + 1) & Psn::mask, before));
  return verdict;
}

void Responder::accept(TimePoint now, const wire::PacketView& packet, bool ends_message) {
  const wire::Kind kind = packet.info->kind;
  const std::uint32_t mtu = operations_.attributes().path_mtu_bytes;
  const bool is_read = kind == wire::Kind::read_request;
  expected_ = expected_ + (is_read ? packet_count(packet.headers.reth.length, mtu) : 1);
  if (ends_message) msn_ = (msn_ + 1) & Psn::mask;
  gap_reported_ = false;
  nak_.reset();
  counters_.bytes_received += packet.payload.size();
  // Answers with data acknowledge all that came before them.
  if (is_answered_by_data(kind))
    ack_pending_ = false;
  else if (packet.headers.bth.ack_request)
    note_ack_wanted(now, packet);
}

// One that waits already waits no longer for what comes behind it.
void Responder::note_ack_wanted(TimePoint now, const wire::PacketView& packet) {
  const bool only_packet = packet.info->position == wire::Position::only;
  if (!ack_pending_)
    hold_.begin(now, only_packet);
  else if (!only_packet)
    hold_.hurry();
  ack_pending_ = true;
}

// A repeated SEND or WRITE is acknowledged again, not executed; a repeated READ is executed again,
// a repeated atomic answered from memory (IBTA vol. 1, 9.7.5).
void Responder::repeat(const wire::PacketView& packet) {
  ++counters_.duplicate_packets;
  if (packet.info->kind == wire::Kind::read_request) return repeat_read(packet);
  if (packet.info->kind == wire::Kind::atomic_request) return repeat_atomic(packet);
  ack_pending_ = ack_repeated_ = true;
  hold_.hurry();
}

void Responder::repeat_read(const wire::PacketView& packet) {
  const QpAttr& attributes = operations_.attributes();
  const wire::Headers& headers = packet.headers;
  ReadJob job = job_of(headers, attributes.path_mtu_bytes, msn_);
  job.duplicate = true;
  if (headers.reth.length > max_message_bytes ||
      distance(expected_, headers.bth.psn) < static_cast<std::int64_t>(job.packets)) {
    ++counters_.dropped_packets;  // reaches beyond what was ever asked for
    return;
  }
  const Verdict verdict = operations_.executor().check_read(headers.reth.address, headers.reth.rkey,
                                                            headers.reth.length, attributes.access);
  if (verdict.kind == Verdict::Kind::ok) return reads_.add_duplicate(job, attributes.max_dest_rd_atomic);
  // The region may be gone since the first answer arrived, and the repetition may be the
  // network's doing: only a requester that still waits for this PSN takes the NAK to heart.
  if (!nak_) nak_ = Nak{wire::Aeth::nak(verdict.code, msn_), headers.bth.psn};
}

void Responder::repeat_atomic(const wire::PacketView& packet) {
  const std::size_t kept = operations_.attributes().max_dest_rd_atomic;
  const auto before = atomics_.find(packet.headers.bth.psn, kept);
  if (!before) {
    ++counters_.dropped_packets;  // no honest peer still waits for it
    return;
  }
  ReadJob job = atomic_job_of(packet.headers, msn_, *before);
  job.duplicate = true;
  reads_.add_duplicate(job, kept);
}

// Once, and again when the peer has gone back and the packet was lost once more: PSNs no longer grow then.
void Responder::report_gap(Psn psn) {
  ++counters_.out_of_sequence_packets;
  const bool again = distance(psn, last_ahead_) <= 0;
  last_ahead_ = psn;
  if (gap_reported_ && !again) return;
  gap_reported_ = true;
  nak_ = Nak{wire::Aeth::nak(NakCode::psn_sequence, msn_), expected_};
}

// What follows the refused packet is dropped in silence until that comes again.
void Responder::report_not_ready() {
  gap_reported_ = true;
  last_ahead_ = expected_;
  nak_ = Nak{wire::Aeth::rnr_nak(operations_.attributes().min_rnr_timer, msn_), expected_};
}

void Responder::refuse(const Verdict& nak, Psn psn) {
  nak_ = refusal_ = Nak{wire::Aeth::nak(nak.code, msn_), psn};
  last_words_ = true;
  ack_pending_ = false;
  operations_.refuse(nak);
}

TimePoint Responder::next_timeout() const {
  return has_ack() && !has_answers() ? hold_.due() : TimePoint::never();
}

bool Responder::wants_transmit(TimePoint now) const {
  return has_answers() || (has_ack() && hold_.is_due(now));
}

std::size_t Responder::poll_transmit(TimePoint now, std::span<TxDesc> out, bool with_request) {
  std::size_t count = 0;
  while (count < out.size() && (wants_transmit(now) || (with_request && has_ack()))) {
    TxDesc& desc = out[count++];
    if (ReadJob* job = reads_.current()) {
      emit_response(*job, desc);
    } else if (nak_) {
      emit_nak(desc);
    } else {
      ack_pending_ = ack_repeated_ = false;
      hold_.note_left(now, with_request);
      emit_acknowledge(wire::Aeth::ack(msn_), expected_ - 1, desc);
    }
  }
  return count;
}

void Responder::emit_response(ReadJob& job, TxDesc& desc) {
  const std::uint32_t mtu = operations_.attributes().path_mtu_bytes;
  const std::uint32_t bytes = job.atomic ? 0 : packet_bytes(job.length, mtu, job.sent);
  const wire::Opcode opcode =
      job.atomic ? wire::Opcode::rc_atomic_acknowledge : response_opcode(position_of(job.sent, job.packets));
  desc.headers = {};
  desc.headers.bth.opcode = opcode;
  desc.headers.bth.pad_count = wire::pad_for(bytes);
  desc.headers.bth.destination = operations_.attributes().destination;
  desc.headers.bth.psn = job.next_psn();
  if (wire::info(opcode).has_aeth) desc.headers.aeth = wire::Aeth::ack(job.msn);
  desc.headers.atomic_before = job.before;
  desc.refs[0] = {job.address + std::uint64_t{job.sent} * mtu, bytes, job.rkey, Access::remote_read};
  desc.ref_count = bytes == 0 ? 0 : 1;
  desc.inline_payload = {};
  desc.path = nullptr;  // descriptors are reused, also by queue pairs of datagrams
  desc.payload_bytes = bytes;
  desc.must_copy = desc.alone = job.duplicate;
  ++job.sent;
  ++counters_.packets_sent;
  counters_.bytes_sent += bytes;
  counters_.retransmitted_packets += job.duplicate;
}

void Responder::emit_acknowledge(const wire::Aeth& aeth, Psn psn, TxDesc& desc) {
  desc.headers = {};
  desc.headers.bth.opcode = wire::Opcode::rc_acknowledge;
  desc.headers.bth.destination = operations_.attributes().destination;
  desc.headers.bth.psn = psn;
  desc.headers.aeth = aeth;
  desc.ref_count = 0;
  desc.inline_payload = {};
  desc.path = nullptr;  // descriptors are reused, also by queue pairs of datagrams
  desc.payload_bytes = 0;
  desc.must_copy = desc.alone = false;
  ++counters_.packets_sent;
}

void Responder::emit_nak(TxDesc& desc) {
  emit_acknowledge(nak_->aeth, nak_->psn, desc);
  ++(nak_->aeth.kind() == wire::AckKind::rnr_nak ? counters_.rnr_naks_sent : counters_.naks_sent);
  if (nak_->psn == expected_) ack_pending_ = false;  // a NAK acknowledges what came before
  nak_.reset();
  last_words_ = false;
}

void Responder::transmit_fault(const TxDesc& desc) {
  if (!operations_.can_receive()) return;
  reads_.clear();
  const Psn psn = desc.headers.bth.psn;
  if (!desc.must_copy) return refuse(Verdict::nak(NakCode::remote_operation), psn);
  nak_ = Nak{wire::Aeth::nak(NakCode::remote_operation, msn_), psn};  // as in repeat_read
}

void Responder::take_back(const TxDesc& desc) {
  --counters_.packets_sent;
  counters_.bytes_sent -= desc.payload_bytes;
  const wire::Headers& headers = desc.headers;
  if (headers.bth.opcode != wire::Opcode::rc_acknowledge) {
    counters_.retransmitted_packets -= desc.must_copy;
    return reads_.take_back(headers.bth.psn);
  }
  const bool is_ack = headers.aeth.kind() == wire::AckKind::ack;
  if (!is_ack)
    --(headers.aeth.kind() == wire::AckKind::rnr_nak ? counters_.rnr_naks_sent : counters_.naks_sent);
  if (is_ack) {
    ack_pending_ = true;
    hold_.hurry();
  } else if (!nak_) {
    nak_ = Nak{headers.aeth, headers.bth.psn};
    last_words_ = operations_.state() == QpState::err;
  }
}

}  // namespace beeline::proto
