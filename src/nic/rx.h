// From a datagram to the queue pair that it is for: a chain of checks, each of which
// costs the sender of garbage his packet and us a counter.
#pragma once

#include "nic/management.h"
#include "nic/qpn_table.h"
#include "nic/queue_pair.h"

namespace beeline::nic {

class Receiver {
 public:
  Receiver(const QpnTable& queue_pairs, Management& management, CardCounters& counters)
      : queue_pairs_(queue_pairs), management_(management), counters_(counters) {}

  // The queue pair that got the packet, or nullptr. The caller holds the engine.
  QueuePair* take(const port::InPacket& datagram, TimePoint now);

 private:
  bool icrc_is_good(const port::InPacket& datagram);
  QueuePair* find(const wire::PacketView& packet);

  const QpnTable& queue_pairs_;
  Management& management_;
  CardCounters& counters_;
};

}  // namespace beeline::nic
