// The receiving half of a queue pair for datagrams (IBTA vol. 1, 9.8.3.2): every packet is a message, and
// stands for itself.
#pragma once

#include <cstdint>

#include "proto/ops/operations.h"
#include "wire/packet.h"

namespace beeline::proto {

class DatagramReceiver {
 public:
  DatagramReceiver(const QpSetup& setup, Operations& operations, QpCounters& counters)
      : operations_(operations), counters_(counters), mtu_(setup.datagram_mtu_bytes) {}

  void handle_packet(const wire::PacketView& packet, const Arrival& arrival);

 private:
  bool accepts(const wire::PacketView& packet) const;
  bool deliver(const wire::PacketView& packet, const Arrival& arrival);
  void complete(const wire::PacketView& packet, const Arrival& arrival);

  Operations& operations_;
  QpCounters& counters_;
  const std::uint32_t mtu_;
};

}  // namespace beeline::proto
