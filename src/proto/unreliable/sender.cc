#include "proto/unreliable/sender.h"

#include "base/check.h"
#include "proto/ops/gather.h"
#include "proto/reliability/segmentation.h"
#include "proto/unreliable/opcodes.h"
#include "wire/packet.h"

namespace beeline::proto {
namespace {

// A Q_Key with the top bit set in a work request stands for the queue pair's own (IBTA vol. 1, 10.2.5).
constexpr std::uint32_t own_qkey_bit = 0x8000'0000u;
constexpr std::uint32_t qpn_mask = 0xFF'FFFFu;

}  // namespace

UnreliableSender::UnreliableSender(const QpSetup& setup, Operations& operations, QpCounters& counters)
    : operations_(operations),
      counters_(counters),
      type_(setup.type),
      datagram_mtu_(setup.datagram_mtu_bytes) {}

void UnreliableSender::start() {
  forget();
  mtu_ = type_ == QpType::ud ? datagram_mtu_ : operations_.attributes().path_mtu_bytes;
  next_psn_ = batch_psn_ = operations_.attributes().sq_psn;
}

void UnreliableSender::forget() {
  cursor_ = batch_begin_ = {operations_.sends().tail(), 0};
  batch_psn_ = next_psn_;
  signaled_in_batch_ = 0;
  failure_ = WcStatus::success;
}

PostResult UnreliableSender::post(const SendWr& wr) {
  if (type_ == QpType::ud) {
    if (const PostResult result = check_datagram(wr); result != PostResult::ok) return result;
  }
  const PostResult result = operations_.post_send(wr);
  if (operations_.sends().empty()) forget();  // in SQE and ERR a request is flushed at once
  return result;
}

PostResult UnreliableSender::check_datagram(const SendWr& wr) const {
  if (wr.target == nullptr || wr.target->remote_qpn.value > qpn_mask) return PostResult::invalid;
  return total_length(wr.sges) > datagram_mtu_ ? PostResult::too_long : PostResult::ok;
}

std::uint32_t UnreliableSender::packets_of(const SendRequest& request) const {
  return packet_count(request.length, mtu_);
}

// A message that has begun is finished also while the send queue drains.
bool UnreliableSender::wants_transmit() const {
  const bool allowed = cursor_.packet == 0 ? operations_.may_begin() : operations_.can_send();
  return allowed && cursor_.sequence != operations_.sends().tail() && failure_ == WcStatus::success;
}

std::size_t UnreliableSender::poll_transmit(std::span<TxDesc> out) {
  settle();
  std::size_t count = 0;
  while (count < out.size() && wants_transmit()) {
    if (cursor_.packet == 0 && !begin_request()) break;
    emit(out[count++]);
  }
  return count;
}

// False when the request cannot be sent at all; it fails when those before it are settled.
bool UnreliableSender::begin_request() {
  failure_ = operations_.check_send(current());
  return failure_ == WcStatus::success;
}

void UnreliableSender::emit(TxDesc& desc) {
  const SendRequest& request = current();
  build(request, desc);
  advance(request);
  ++counters_.packets_sent;
  counters_.bytes_sent += desc.payload_bytes;
}

// Writes the fields of a descriptor one by one: it is large, and mostly unused.
void UnreliableSender::build(const SendRequest& request, TxDesc& desc) const {
  const std::uint32_t offset = cursor_.packet * mtu_;
  const std::uint32_t bytes = packet_bytes(request.length, mtu_, cursor_.packet);
  desc.headers = {};
  wire::Bth& bth = desc.headers.bth;
  bth.opcode = unreliable_opcode(type_, request.opcode, position_of(cursor_.packet, packets_of(request)));
  const wire::OpcodeInfo& row = wire::info(bth.opcode);
  bth.psn = next_psn_;
  bth.pad_count = wire::pad_for(bytes);
  bth.solicited = request.solicited && row.ends_message();
  if (row.has_reth) desc.headers.reth = {request.remote_address, request.rkey, request.length};
  if (row.has_immediate) desc.headers.immediate = request.immediate;
  address(desc);
  desc.payload_bytes = bytes;
  desc.must_copy = desc.alone = false;
  desc.ref_count = 0;
  desc.inline_payload = {};
  if (request.inline_data) {
    desc.inline_payload = request.inline_bytes.subspan(offset, bytes);
  } else {
    desc.ref_count = gather(request.sges, offset, bytes, Access::none, desc.refs);
  }
}

void UnreliableSender::address(TxDesc& desc) const {
  const QpAttr& attributes = operations_.attributes();
  desc.path = nullptr;
  desc.headers.bth.destination = attributes.destination;
  if (type_ != QpType::ud) return;
  const DatagramTarget& target = operations_.sends().target(cursor_.sequence);
  const bool own_qkey = (target.remote_qkey & own_qkey_bit) != 0;
  desc.path = &target.path;
  desc.headers.bth.destination = target.remote_qpn;
  desc.headers.deth = {own_qkey ? attributes.qkey : target.remote_qkey, operations_.qpn()};
}

void UnreliableSender::advance(const SendRequest& request) {
  ++next_psn_;
  if (++cursor_.packet != packets_of(request)) return;
  cursor_ = {cursor_.sequence + 1, 0};
  signaled_in_batch_ += request.signaled;
}

bool UnreliableSender::in_batch(Psn psn) const {
  const std::int32_t offset = distance(psn, batch_psn_);
  return offset >= 0 && offset < distance(next_psn_, batch_psn_);
}

// To a packet of the open batch.
void UnreliableSender::go_back_to(Psn psn) {
  cursor_ = batch_begin_;
  next_psn_ = batch_psn_;
  signaled_in_batch_ = 0;
  failure_ = WcStatus::success;
  while (next_psn_ != psn) advance(current());
}

void UnreliableSender::transmit_refused(std::span<const TxDesc> unsent) {
  if (unsent.empty() || !in_batch(unsent.front().headers.bth.psn)) return;
  for (const TxDesc& desc : unsent) {
    --counters_.packets_sent;
    counters_.bytes_sent -= desc.payload_bytes;
  }
  go_back_to(unsent.front().headers.bth.psn);
}

// The PSNs behind the fault are not used again: some of them may have left.
void UnreliableSender::transmit_fault(const TxDesc& desc) {
  const Psn psn = desc.headers.bth.psn;
  if (!in_batch(psn)) return;
  const Psn next = next_psn_;
  go_back_to(psn);
  next_psn_ = next;
  failure_ = WcStatus::local_protection_error;
  settle();
}

void UnreliableSender::settle() {
  while (operations_.sends().head() < cursor_.sequence) operations_.complete_send();
  batch_begin_ = cursor_;
  batch_psn_ = next_psn_;
  signaled_in_batch_ = 0;
  if (failure_ != WcStatus::success) {
    operations_.fail_send(failure_);
    forget();
  }
  if (cursor_.packet == 0) operations_.note_idle();
}

}  // namespace beeline::proto
