// From a datagram to the queue pair that it is for: a chain of checks, each of which
// costs the sender of garbage his packet and us a counter.
#pragma once

#include <array>

#include "nic/management.h"
#include "nic/qpn_table.h"
#include "nic/queue_pair.h"
#include "wire/packet.h"

namespace beeline::nic {

class Receiver {
 public:
  Receiver(const QpnTable& queue_pairs, Management& management, CardCounters& counters)
      : queue_pairs_(queue_pairs), management_(management), counters_(counters) {}

  // Calls got(qp) for each queue pair that got a packet. The caller holds the engine.
  template <class Got>
  void take(const port::InPacket& datagram, TimePoint now, Got&& got) {
    const auto packet = examine(datagram);
    if (const std::size_t cut = packet ? 0 : cut_of(datagram); cut != 0) {
      ++counters_.trains_received;
      for (std::size_t place = 0; place * cut < datagram.bytes.size(); ++place) {
        const port::InPacket part = part_of(datagram, cut, place);
        if (QueuePair* qp = deliver(part, examine(part), now)) got(*qp);
      }
      return;
    }
    if (QueuePair* qp = deliver(datagram, packet, now)) got(*qp);
  }

 private:
  enum class Flaw : std::uint8_t { malformed, icrc };
  using Examined = tl::expected<wire::PacketView, Flaw>;

  Examined examine(const port::InPacket& datagram);
  std::size_t cut_of(const port::InPacket& datagram);
  static port::InPacket part_of(const port::InPacket& train, std::size_t cut, std::size_t place);
  QueuePair* deliver(const port::InPacket& datagram, const Examined& packet, TimePoint now);
  bool icrc_is_good(const port::InPacket& datagram);
  QueuePair* find(const wire::PacketView& packet);

  const QpnTable& queue_pairs_;
  Management& management_;
  CardCounters& counters_;
  // By the opcode that a train begins with: the next one is probably cut alike.
  std::array<std::uint16_t, 256> last_cuts_{};
};

}  // namespace beeline::nic
