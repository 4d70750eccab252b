#include "proto/unreliable/connected_receiver.h"

#include "proto/ops/gather.h"
#include "proto/unreliable/receive_errors.h"

namespace beeline::proto {

void ConnectedReceiver::start() {
  stop();
  expected_ = operations_.attributes().rq_psn;
}

ConnectedReceiver::Kind ConnectedReceiver::kind_of(const wire::PacketView& packet) {
  return packet.info->kind == wire::Kind::write ? Kind::write : Kind::send;
}

void ConnectedReceiver::handle_packet(const wire::PacketView& packet) {
  if (!operations_.can_receive() || !fits_in_place(packet) || !execute(packet)) {
    message_ = {};
    ++counters_.dropped_packets;
    return;
  }
  counters_.bytes_received += packet.payload.size();
  message_.kind = kind_of(packet);
  message_.done += static_cast<std::uint32_t>(packet.payload.size());
  if (packet.info->ends_message()) message_ = {};
}

// Whether the packet begins a message, or continues the one under way.
bool ConnectedReceiver::fits_in_place(const wire::PacketView& packet) {
  const Psn psn = packet.headers.bth.psn;
  const bool in_sequence = psn == expected_;
  expected_ = psn + 1;
  if (!in_sequence) ++counters_.out_of_sequence_packets;
  if (packet.info->starts_message()) {
    message_ = {};
  } else if (!in_sequence || message_.kind != kind_of(packet)) {
    return false;
  }
  return wire::payload_fits(*packet.info, packet.payload.size(), operations_.attributes().path_mtu_bytes);
}

bool ConnectedReceiver::execute(const wire::PacketView& packet) {
  return kind_of(packet) == Kind::write ? write(packet) : send(packet);
}

bool ConnectedReceiver::send(const wire::PacketView& packet) {
  const ReceiveRequest* receive = operations_.receives().hold();
  if (receive == nullptr) return false;
  const std::uint64_t end = std::uint64_t{message_.done} + packet.payload.size();
  if (end > receive->length || end > max_message_bytes) {
    fail_too_long(operations_);
    return false;
  }
  if (scatter(operations_.memory(), operations_.domain(), receive->sges, message_.done, packet.payload) !=
      MemoryStatus::ok) {
    fail_unreachable(operations_);
    return false;
  }
  if (packet.info->ends_message()) complete(packet, WcOpcode::receive);
  return true;
}

bool ConnectedReceiver::begin_write(const wire::Reth& reth) {
  if (!allows(operations_.attributes().access, Access::remote_write) || reth.length > max_message_bytes)
    return false;
  message_ = {Kind::none, reth.address, reth.rkey, reth.length, 0};
  if (reth.length == 0) return true;
  Memory& memory = operations_.memory();
  return memory.check_user(reth.rkey, operations_.qpn()) == MemoryStatus::ok &&
         memory.check(operations_.domain(), reth.rkey, reth.address, reth.length, Access::remote_write) ==
             MemoryStatus::ok;
}

bool ConnectedReceiver::write(const wire::PacketView& packet) {
  const bool last = packet.info->ends_message();
  if (packet.info->starts_message() && !begin_write(packet.headers.reth)) return false;
  // The last packet ends exactly at the announced length, and no other does.
  const std::size_t left = message_.length - message_.done;
  if (last ? packet.payload.size() != left : packet.payload.size() >= left) return false;
  if (packet.info->has_immediate && operations_.receives().hold() == nullptr) return false;
  if (!packet.payload.empty() &&
      operations_.memory().write(operations_.domain(), message_.rkey, message_.address + message_.done,
                                 packet.payload, Access::remote_write) != MemoryStatus::ok)
    return false;
  if (packet.info->has_immediate) complete(packet, WcOpcode::receive_write_imm);
  return true;
}

void ConnectedReceiver::complete(const wire::PacketView& packet, WcOpcode opcode) {
  Completion completion;
  completion.opcode = opcode;
  completion.solicited = packet.headers.bth.solicited;
  completion.has_immediate = packet.info->has_immediate;
  completion.immediate = packet.info->has_immediate ? packet.headers.immediate : 0;
  completion.byte_length = message_.done + static_cast<std::uint32_t>(packet.payload.size());
  operations_.receives().complete(completion);
}

}  // namespace beeline::proto
