// The receiving half of an unreliable connection (IBTA vol. 1, 9.8.2.2). Nobody is told of what goes wrong: a
// gap in the PSNs, an opcode out of place, a key that is not valid, no receive request: each drops the
// message under way. A message that was broken off leaves its receive request to the next one, which any
// FIRST or ONLY packet begins, whatever its PSN.
#pragma once

#include <cstdint>

#include "proto/ops/operations.h"
#include "wire/packet.h"

namespace beeline::proto {

class ConnectedReceiver {
 public:
  ConnectedReceiver(Operations& operations, QpCounters& counters)
      : operations_(operations), counters_(counters) {}

  void start();  // INIT to RTR
  void stop() { message_ = {}; }

  void handle_packet(const wire::PacketView& packet);

 private:
  enum class Kind : std::uint8_t { none, send, write };
  struct Message {
    Kind kind = Kind::none;
    std::uint64_t address = 0;  // of a WRITE
    Key rkey{};
    std::uint32_t length = 0;  // of a WRITE, announced
    std::uint32_t done = 0;    // bytes so far
  };

  static Kind kind_of(const wire::PacketView& packet);
  bool fits_in_place(const wire::PacketView& packet);
  bool execute(const wire::PacketView& packet);
  bool send(const wire::PacketView& packet);
  bool begin_write(const wire::Reth& reth);
  bool write(const wire::PacketView& packet);
  void complete(const wire::PacketView& packet, WcOpcode opcode);

  Operations& operations_;
  QpCounters& counters_;
  Psn expected_;
  Message message_;
};

}  // namespace beeline::proto
