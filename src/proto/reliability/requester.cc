#include "proto/reliability/requester.h"

#include <algorithm>

#include "base/check.h"
#include "proto/ops/gather.h"
#include "proto/reliability/segmentation.h"
#include "wire/packet.h"

namespace beeline::proto {
namespace {

// Writes the fields of a descriptor one by one: it is large, and mostly unused.
wire::Bth& begin_headers(TxDesc& desc, wire::Opcode opcode, Qpn destination, Psn psn) {
  desc.headers = {};
  desc.ref_count = 0;
  desc.inline_payload = {};
  desc.path = nullptr;  // descriptors are reused, also by queue pairs of datagrams
  desc.payload_bytes = 0;
  wire::Bth& bth = desc.headers.bth;
  bth.opcode = opcode;
  bth.destination = destination;
  bth.psn = psn;
  return bth;
}

}  // namespace

Requester::Requester(Operations& operations, QpCounters& counters, std::uint32_t window_bytes)
    : operations_(operations),
      counters_(counters),
      plans_(operations.sends().slots()),
      reads_(max_outstanding_reads),
      window_bytes_(std::min(window_bytes, max_window_bytes)) {}

void Requester::start() {
  const QpAttr& attributes = operations_.attributes();
  stop();
  timer_.configure(attributes.timeout, attributes.retry_count);
  mtu_ = attributes.path_mtu_bytes;
  planned_ = operations_.sends().head();
  acked_ = cursor_ = high_ = {planned_, 0};
  next_psn_ = rewound_to_ = attributes.sq_psn;
  next_charge_ = charge_acknowledged_ = 0;
  loss_window_.configure(full_charge());
  rnr_retries_left_ = attributes.rnr_retry;
}

void Requester::stop() {
  timer_.stop();
  reads_.clear();
  charge_since_ack_request_ = 0;
  went_back_ = false;
  waiting_for_receiver_ = false;
  failed_.reset();
  round_trip_ = {};
}

void Requester::set_window(std::uint32_t window_bytes) {
  window_bytes_ = std::min(window_bytes, max_window_bytes);
}

void Requester::reconfigure_timer(TimePoint now) {
  const bool running = timer_.running();
  timer_.configure(operations_.attributes().timeout, operations_.attributes().retry_count);
  if (running) timer_.arm(now);
}

Requester::Position Requester::advanced(Position from, std::uint32_t packets) const {
  from.packet += packets;
  return from.packet < plan(from.sequence).packets ? from : Position{from.sequence + 1, 0};
}

Psn Requester::psn_at(Position position) const {
  return position.sequence == planned_ ? next_psn_ : plan(position.sequence).first_psn + position.packet;
}

std::uint64_t Requester::charge_at(Position position) const {
  if (position.sequence == planned_) return next_charge_;
  // Only the last packet of a message may be short, and no position lies behind it.
  return plan(position.sequence).charge_before + position.packet * full_charge();
}

Requester::Plan Requester::make_plan(const SendRequest& request) const {
  const std::uint32_t packets = packet_count(request.length, mtu_);
  const std::uint32_t window_packets = std::max(1u, window_bytes_ / packet_charge(mtu_));
  const std::uint32_t piece = packets <= window_packets ? packets : std::max(1u, window_packets / 2);
  return {next_psn_, packets, piece, next_charge_};
}

Requester::Step Requester::step_of(std::uint32_t packets, std::uint32_t bytes) const {
  const std::uint64_t full = packets - 1;
  const auto last = static_cast<std::uint32_t>(bytes - full * mtu_);
  return {packets, bytes, full * full_charge() + packet_charge(last)};
}

Requester::Step Requester::next_step() const {
  const SendRequest& request = operations_.sends()[cursor_.sequence];
  if (request.opcode != WrOpcode::read) return step_of(1, packet_bytes(request.length, mtu_, cursor_.packet));
  const Plan whole = cursor_.sequence == planned_ ? make_plan(request) : plan(cursor_.sequence);
  const std::uint32_t end = std::min(whole.packets, (cursor_.packet / whole.piece + 1) * whole.piece);
  const std::uint64_t end_byte = std::min<std::uint64_t>(std::uint64_t{end} * mtu_, request.length);
  const std::uint64_t begin_byte = std::uint64_t{cursor_.packet} * mtu_;
  return step_of(end - cursor_.packet, static_cast<std::uint32_t>(end_byte - begin_byte));
}

bool Requester::wants_transmit(TimePoint now) const {
  const SendQueue& sends = operations_.sends();
  if (!operations_.can_send() || cursor_.sequence == sends.tail() || cursor_.sequence == failed_)
    return false;
  if (waiting_for_receiver_ && now < wait_until_) return false;
  const SendRequest& request = sends[cursor_.sequence];
  if (cursor_.sequence == planned_) {
    if (!operations_.may_begin() || sends.fenced(cursor_.sequence)) return false;
    if (is_local(request.opcode)) return cursor_.sequence == sends.head();
  }
  const std::size_t allowed_reads = std::max<std::size_t>(1, operations_.attributes().max_rd_atomic);
  if (answered_by_data(request.opcode) && reads_.size() >= allowed_reads) return false;
  const std::uint64_t used = in_flight();
  // A READ comes as large as it was planned, whatever has been lost since.
  const std::uint64_t allowed = answered_by_data(request.opcode) ? window_bytes_ : window();
  return used == 0 || used + next_step().charge <= allowed;
}

std::size_t Requester::poll_transmit(TimePoint now, std::span<TxDesc> out) {
  std::size_t count = 0;
  while (count < out.size() && wants_transmit(now)) {
    waiting_for_receiver_ = false;
    if (cursor_.sequence == planned_) {
      if (is_local(operations_.sends()[cursor_.sequence].opcode)) {
        run_local();
        continue;
      }
      if (!begin(cursor_.sequence)) break;
    }
    emit(now, out[count++]);
  }
  return count;
}

// Allots PSNs to the next request, unless it cannot be sent at all.
bool Requester::begin(std::uint64_t sequence) {
  const SendRequest& request = operations_.sends()[sequence];
  if (const WcStatus status = operations_.check_send(request); status != WcStatus::success) {
    mark_failed(sequence, status);
    return false;
  }
  const Plan made = make_plan(request);
  plans_[operations_.sends().slot(sequence)] = made;
  next_psn_ = next_psn_ + made.packets;
  next_charge_ += step_of(made.packets, request.length).charge;
  planned_ = sequence + 1;
  return true;
}

// It takes no place in the stream of packets: all three places move on past it.
void Requester::run_local() {
  operations_.run_local();
  ++planned_;
  acked_ = cursor_ = high_ = {planned_, 0};
}

void Requester::emit(TimePoint now, TxDesc& desc) {
  const SendRequest& request = operations_.sends()[cursor_.sequence];
  const Step step = next_step();
  if (request.opcode == WrOpcode::read) {
    build_read(request, step, desc);
  } else if (is_atomic(request.opcode)) {
    build_atomic(request, desc);
  } else {
    build_data(request, step, desc);
  }
  desc.must_copy = cursor_ < high_;
  desc.alone = desc.must_copy && repeat_alone_;
  const Position first_answer = advanced(cursor_, 1);
  cursor_ = advanced(cursor_, step.packets);
  desc.headers.bth.ack_request = should_request_ack(desc, step);
  if (answered_by_data(request.opcode)) reads_.push() = charge_at(cursor_);
  note_sent(now, desc, first_answer);
}

void Requester::build_data(const SendRequest& request, const Step& step, TxDesc& desc) const {
  const wire::Position position = position_of(cursor_.packet, plan(cursor_.sequence).packets);
  wire::Bth& bth = begin_headers(desc, request_opcode(request.opcode, position),
                                 operations_.attributes().destination, psn_at(cursor_));
  const wire::OpcodeInfo& row = wire::info(bth.opcode);
  bth.solicited = request.solicited && row.ends_message();
  bth.pad_count = wire::pad_for(step.bytes);
  if (row.has_reth) desc.headers.reth = {request.remote_address, request.rkey, request.length};
  if (row.has_immediate) desc.headers.immediate = request.immediate;
  if (row.has_ieth) desc.headers.invalidate = request.invalidate;
  const std::uint32_t offset = cursor_.packet * mtu_;
  desc.payload_bytes = step.bytes;
  if (request.inline_data) {
    desc.inline_payload = request.inline_bytes.subspan(offset, step.bytes);
  } else {
    desc.ref_count = gather(request.sges, offset, step.bytes, Access::none, desc.refs);
  }
}

void Requester::build_read(const SendRequest& request, const Step& step, TxDesc& desc) const {
  begin_headers(desc, request_opcode(request.opcode, wire::Position::only),
                operations_.attributes().destination, psn_at(cursor_));
  const std::uint64_t offset = std::uint64_t{cursor_.packet} * mtu_;
  desc.headers.reth = {request.remote_address + offset, request.rkey, step.bytes};
}

void Requester::build_atomic(const SendRequest& request, TxDesc& desc) const {
  begin_headers(desc, request_opcode(request.opcode, wire::Position::only),
                operations_.attributes().destination, psn_at(cursor_));
  const Operands& operands = operations_.sends().operands(cursor_.sequence);
  const std::uint64_t compare = request.opcode == WrOpcode::compare_swap ? operands.compare : 0;
  desc.headers.atomic = {request.remote_address, request.rkey, operands.swap_or_add, compare};
}

// On the last packet of a message, every quarter of a window, and before the window closes.
bool Requester::should_request_ack(const TxDesc& desc, const Step& step) {
  charge_since_ack_request_ += step.charge;
  const bool now_or_never = in_flight() + full_charge() > window();
  const bool due = charge_since_ack_request_ >= window() / 4;
  if (!wire::info(desc.headers.bth.opcode).ends_message() && !now_or_never && !due) return false;
  charge_since_ack_request_ = 0;
  return true;
}

void Requester::note_sent(TimePoint now, const TxDesc& desc, Position first_answer) {
  ++counters_.packets_sent;
  counters_.bytes_sent += desc.payload_bytes;
  if (desc.must_copy) {
    ++counters_.retransmitted_packets;
  } else if (desc.headers.bth.ack_request && !round_trip_.running) {
    round_trip_ = {true, first_answer, now};
  }
  high_ = std::max(high_, cursor_);
  timer_.arm(now);
}

void Requester::mark_failed(std::uint64_t sequence, WcStatus status) {
  if (failed_ && *failed_ <= sequence) return;
  failed_ = sequence;
  failed_status_ = status;
  cursor_ = std::max(acked_, std::min(cursor_, Position{sequence, 0}));
  settle_failure();
}

// A request that cannot be sent fails when all before it are complete: completions stay in order.
void Requester::settle_failure() {
  if (!failed_ || !operations_.can_send()) return;
  const std::uint64_t head = operations_.sends().head();
  if (*failed_ == head) operations_.fail_send(failed_status_);
  if (*failed_ <= head) failed_.reset();
}

std::optional<Requester::Position> Requester::locate(Psn psn) const {
  const std::int32_t offset = distance(psn, psn_at(acked_));
  if (offset < 0 || offset >= distance(psn_at(cursor_), psn_at(acked_))) return std::nullopt;
  auto left = static_cast<std::uint32_t>(offset);
  Position position = acked_;
  for (;;) {
    const std::uint32_t here = plan(position.sequence).packets - position.packet;
    if (left < here) return advanced(position, left);
    left -= here;
    position = {position.sequence + 1, 0};
  }
}

void Requester::transmit_fault(const TxDesc& desc) {
  if (!operations_.can_send()) return;
  if (const auto position = locate(desc.headers.bth.psn))
    mark_failed(position->sequence, WcStatus::local_protection_error);
}

void Requester::take_back(const TxDesc& desc) {
  if (!operations_.can_send()) return;
  const auto position = locate(desc.headers.bth.psn);
  if (!position) return;
  cursor_ = *position;
  if (!desc.must_copy) high_ = *position;
  while (!reads_.empty() && reads_.back() > charge_at(cursor_)) reads_.pop_back();
  if (round_trip_.running && round_trip_.until > cursor_) round_trip_.running = false;
  if (high_ == acked_) timer_.stop();  // nothing is out
  --counters_.packets_sent;
  counters_.bytes_sent -= desc.payload_bytes;
  if (desc.must_copy) --counters_.retransmitted_packets;
}

}  // namespace beeline::proto
