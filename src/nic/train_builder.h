// Which packets of a queue pair leave as a train (port.h), and each one's place in it, which is its IPv4
// identification.
//
// A train is cut into equal pieces, so only its last packet may be shorter: of a message, FIRST, which is
// longer, goes with one MIDDLE, all others go together; and an acknowledgement, as short as any packet, ends
// a train that it follows. What is sent again goes alone if trains are what does not arrive: should they be
// numbered otherwise on the way than they are here, nothing is lost for good. PSNs follow one another:
// receivers that see a train before it is cut find by them where it is (train_cut.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "port/port.h"

namespace beeline::nic {

class TrainBuilder {
 public:
  struct Packet {
    std::size_t bytes = 0;  // UDP payload
    std::size_t pieces = 1;
    Psn psn;
    const void* path = nullptr;  // where to; packets of one connection all have the same
    bool alone = false;          // in no train
    bool acknowledges = false;   // of another stream of PSNs
  };

  // Packets of another queue pair follow. `packets_max`: of a train; 1: there are none.
  void begin(std::size_t packets_max) {
    packets_max_ = std::min(packets_max, port::train_packets_max);
    packets_ = 0;
  }

  // 0: it begins a train, or goes alone.
  std::uint8_t place_of(const Packet& packet) {
    if (!continues(packet)) {
      first_bytes_ = packet.bytes;
      packets_ = bytes_ = pieces_ = 0;
      path_ = packet.path;
    }
    open_ = !packet.alone && !packet.acknowledges && packet.bytes == first_bytes_;
    next_psn_ = packet.psn + 1;
    bytes_ += packet.bytes;
    pieces_ += packet.pieces;
    return static_cast<std::uint8_t>(packets_++);
  }

 private:
  bool continues(const Packet& packet) const {
    return packets_ != 0 && packets_ < packets_max_ && open_ && !packet.alone &&
           packet.bytes <= first_bytes_ && packet.path == path_ &&
           (packet.psn == next_psn_ || packet.acknowledges) &&
           bytes_ + packet.bytes <= port::train_bytes_max &&
           pieces_ + packet.pieces <= port::train_pieces_max;
  }

  std::size_t packets_max_ = 1;
  std::size_t packets_ = 0, bytes_ = 0, pieces_ = 0;  // of the train so far
  std::size_t first_bytes_ = 0;
  const void* path_ = nullptr;
  Psn next_psn_;
  bool open_ = false;  // its last packet is as long as its first
};

}  // namespace beeline::nic
