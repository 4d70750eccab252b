// From a datagram to the queue pair that it is for: a chain of checks, each of which
// costs the sender of garbage his packet and us a counter.
#pragma once

#include <array>

#include "nic/management.h"
#include "nic/qpn_table.h"
#include "nic/queue_pair.h"
#include "nic/train_cut.h"
#include "wire/packet.h"

namespace beeline::nic {

class Receiver {
 public:
  Receiver(const QpnTable& queue_pairs, Management& management, CardCounters& counters)
      : queue_pairs_(queue_pairs), management_(management), counters_(counters) {}

  // What one receive() gave. Calls got(qp) for each queue pair that got a packet. The caller holds the
  // engine.
  template <class Got>
  void take_all(std::span<const port::InPacket> datagrams, TimePoint now, Got&& got) {
    for (std::size_t i = 0; i < datagrams.size(); ++i) {
      const bool pair = i + 1 < datagrams.size() && ends_train(datagrams[i], datagrams[i + 1]);
      if (pair) take(datagrams[i + 1], now, got);
      take(datagrams[i], now, got);
      if (pair) ++i;
    }
    let_go();
  }

 private:
  template <class Got>
  void take(const port::InPacket& datagram, TimePoint now, Got&& got) {
    const auto packet = examine(datagram);
    if (const std::size_t cut = packet ? 0 : cut_of(datagram); cut != 0) {
      ++counters_.trains_received;
      const std::size_t last = (datagram.bytes.size() - 1) / cut;
      const bool ends_with_ack = is_acknowledgement(datagram.bytes.subspan(last * cut));
      if (ends_with_ack) take_part(datagram, cut, last, now, got);
      for (std::size_t place = 0; place + (ends_with_ack ? 1 : 0) <= last; ++place)
        take_part(datagram, cut, place, now, got);
      return;
    }
    if (QueuePair* qp = deliver(datagram, packet, now)) got(*qp);
  }
  template <class Got>
  void take_part(const port::InPacket& train, std::size_t cut, std::size_t place, TimePoint now, Got&& got) {
    const port::InPacket part = part_of(train, cut, place);
    if (QueuePair* qp = deliver(part, examine(part), now)) got(*qp);
  }

  // An acknowledgement at the end of a train is taken before what it follows: a program sees a message of
  // its own complete before the answer to it.
  static bool ends_train(const port::InPacket& before, const port::InPacket& packet) {
    return packet.ip_id != 0 && is_acknowledgement(packet.bytes) && !before.may_be_train &&
           before.source == packet.source && before.source_port == packet.source_port;
  }

  enum class Flaw : std::uint8_t { malformed, icrc };
  using Examined = tl::expected<wire::PacketView, Flaw>;

  Examined examine(const port::InPacket& datagram);
  std::size_t cut_of(const port::InPacket& datagram);
  static port::InPacket part_of(const port::InPacket& train, std::size_t cut, std::size_t place);
  QueuePair* deliver(const port::InPacket& datagram, const Examined& packet, TimePoint now);
  bool icrc_is_good(const port::InPacket& datagram);
  QueuePair* find(const wire::PacketView& packet);
  void hold(QueuePair& qp);
  void let_go();

  const QpnTable& queue_pairs_;
  Management& management_;
  CardCounters& counters_;
  // Packets come in runs, so a queue pair stays locked for the next one, but not for so long that
  // whoever posts would notice.
  static constexpr int packets_per_lock = 16;
  QueuePair* held_ = nullptr;
  int held_for_ = 0;
  // By the opcode that a train begins with: the next one is probably cut alike.
  std::array<std::uint16_t, 256> last_cuts_{};
};

}  // namespace beeline::nic
