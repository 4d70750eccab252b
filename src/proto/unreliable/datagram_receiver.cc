#include "proto/unreliable/datagram_receiver.h"

#include "proto/ops/gather.h"
#include "proto/unreliable/grh.h"

namespace beeline::proto {
namespace {

// How a receive request ends that cannot take its message. The sender learns nothing.
void fail_held_receive(Operations& operations, WcStatus status) {
  Completion completion;
  completion.status = status;
  completion.opcode = WcOpcode::receive;
  operations.receives().complete(completion);
}

// The message is longer than the request: an own request waits for a message that fits. One from a shared
// queue cannot go back there, and ends with an error; the queue pair lives on (as Linux's rdma_rxe has it).
void fail_too_long(Operations& operations) {
  if (operations.receives().is_shared()) fail_held_receive(operations, WcStatus::local_length_error);
}

// The request's own memory is at fault: an error of this side, which stops the queue pair.
void fail_unreachable(Operations& operations) {
  fail_held_receive(operations, WcStatus::local_protection_error);
  operations.enter_error();
}

std::uint16_t udp_bytes_of(const wire::PacketView& packet) {
  constexpr std::size_t udp_header_bytes = 8;
  return static_cast<std::uint16_t>(udp_header_bytes + wire::header_bytes(*packet.info) +
                                    packet.payload.size() + packet.headers.bth.pad_count + wire::icrc_bytes);
}

}  // namespace

void DatagramReceiver::handle_packet(const wire::PacketView& packet, const Arrival& arrival) {
  if (!accepts(packet) || !deliver(packet, arrival)) {
    ++counters_.dropped_packets;
    return;
  }
  counters_.bytes_received += packet.payload.size();
}

bool DatagramReceiver::accepts(const wire::PacketView& packet) const {
  return operations_.can_receive() && packet.headers.deth.qkey == operations_.attributes().qkey &&
         wire::payload_fits(*packet.info, packet.payload.size(), mtu_);
}

bool DatagramReceiver::deliver(const wire::PacketView& packet, const Arrival& arrival) {
  const ReceiveRequest* receive = operations_.receives().hold();
  if (receive == nullptr) return false;
  if (grh_bytes + packet.payload.size() > receive->length) {
    fail_too_long(operations_);
    return false;
  }
  Memory& memory = operations_.memory();
  const PdId domain = operations_.domain();
  const auto grh = grh_of(arrival, udp_bytes_of(packet));
  if (scatter(memory, domain, receive->sges, 0, grh) != MemoryStatus::ok ||
      scatter(memory, domain, receive->sges, grh_bytes, packet.payload) != MemoryStatus::ok) {
    fail_unreachable(operations_);
    return false;
  }
  complete(packet, arrival);
  return true;
}

void DatagramReceiver::complete(const wire::PacketView& packet, const Arrival& arrival) {
  Completion completion;
  completion.opcode = WcOpcode::receive;
  completion.solicited = packet.headers.bth.solicited;
  completion.has_immediate = packet.info->has_immediate;
  completion.immediate = packet.info->has_immediate ? packet.headers.immediate : 0;
  completion.byte_length = static_cast<std::uint32_t>(grh_bytes + packet.payload.size());
  completion.has_grh = true;
  completion.grh_is_ipv4 = arrival.destination.is_v4();
  completion.source_qpn = packet.headers.deth.source;
  operations_.receives().complete(completion);
}

}  // namespace beeline::proto
