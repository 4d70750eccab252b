// The receiving half of an unreliable connection (IBTA vol. 1, 9.8.2.2): the executor's rules without anybody
// who is told of what goes wrong. A gap in the PSNs, an opcode out of place, a key that is not valid, no
// receive request: each drops the message under way. A message that was broken off leaves its receive request
// to the next one, which any FIRST or ONLY packet begins, whatever its PSN.
#pragma once

#include "proto/ops/operations.h"
#include "wire/packet.h"

namespace beeline::proto {

class ConnectedReceiver {
 public:
  ConnectedReceiver(Operations& operations, QpCounters& counters)
      : operations_(operations), counters_(counters) {}

  void start();  // INIT to RTR

  void handle_packet(const wire::PacketView& packet);

 private:
  bool fits_in_place(const wire::PacketView& packet);
  void drop();

  Operations& operations_;
  QpCounters& counters_;
  Psn expected_;
};

}  // namespace beeline::proto
