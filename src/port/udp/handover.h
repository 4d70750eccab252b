// The hand-over channel: packets that the kernel gave to the wrong process go from
// there to the process that owns their slot, and processes tell each other what they
// learned about steering. Over the slots' sockets (slot.h).
//
// Only processes of our own user are talked to, in both directions; what they send
// is validated all the same. Nothing blocks, everything is bounded.
//
// Every two processes of one user are connected: whoever comes later meets those who are
// there. So the kernel tells each when another one ends, however it ends, without any
// traffic: that is when indices shift in the kernel's groups (steering.h).
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/descriptor.h"
#include "port/port.h"
#include "port/udp/slot.h"

namespace beeline::port {

// The largest UDP payload of RoCE v2 is 4096 + 36 bytes of headers + 4 of ICRC.
inline constexpr std::size_t datagram_bytes_max = 4096 + 64;

struct HandOverMessage {
  enum class Kind : std::uint8_t {
    packet = 1,  // the payload is a datagram
    answer = 2,  // the payload is a nonce: `sender` holds `index` at `destination` (steering.h)
  };
  Kind kind = Kind::packet;
  Slot sender;
  bool congestion_experienced = false;
  // Cut from a train whose first datagram is another slot's: what filters look at.
  bool behind_another = false;
  std::uint8_t index = 0;
  std::uint16_t source_port = 0;
  IpAddress source;
  IpAddress destination;
  IpMarks marks;
};

// What a process says of a packet that it passes on, and what the other one makes of it.
HandOverMessage message_about(const InPacket& packet, Slot sender);
InPacket packet_of(const HandOverMessage& message, MutableBytes payload);

inline constexpr std::size_t handover_header_bytes = 48;
using HandOverHeader = std::array<std::byte, handover_header_bytes>;

HandOverHeader encode(const HandOverMessage& message);
std::optional<HandOverMessage> decode_handover(Bytes bytes);  // the header only; nothing when it is none

class HandOver {
 public:
  struct Received {
    HandOverMessage message;
    MutableBytes payload;  // valid until the next receive()
  };
  enum class Outcome : std::uint8_t { passed, refused, full };

  static Result<std::unique_ptr<HandOver>> create();

  Slot slot() const { return slot_; }
  // Polls readable when receive() has something to do.
  int descriptor() const { return epoll_.get(); }

  // Connects to all processes that are there already.
  void meet_others(TimePoint now);
  // No more other processes than this share our ports; some are counted twice.
  int peers() const { return peers_; }
  // True once after a process that we were connected to has ended.
  bool take_departure() { return std::exchange(departure_, false); }

  // To the owner of `slot`. refused: nobody owns it, or a foreign user does.
  Outcome pass(Slot slot, const HandOverMessage& message, Bytes payload, TimePoint now);
  // To all others of our user. How many got it. Cheap enough for what strangers send: slots are looked
  // through only after somebody came.
  int pass_to_all(const HandOverMessage& message, Bytes payload, TimePoint now);
  // Accepts new peers and takes at most out.size() and batch_max messages. Adds what it threw away to
  // `refused`.
  std::size_t receive(std::span<Received> out, std::uint64_t& refused);
  void close_all();

  static constexpr std::size_t batch_max = 16;

 private:
  static constexpr std::size_t buffer_bytes = handover_header_bytes + datagram_bytes_max;
  static constexpr std::size_t incoming_max = std::size_t{2} * slot_count;

  HandOver(ClaimedSlot claimed, Descriptor epoll);
  Outcome connect_to(Slot slot, TimePoint now);
  bool watch(int socket, std::uint32_t tag);
  void part_from(Descriptor& peer);
  void accept_peers(std::uint64_t& refused);
  void admit(Descriptor peer, std::uint64_t& refused);
  bool read_one(Descriptor& peer, Received& out, MutableBytes buffer, std::uint64_t& refused);

  Slot slot_;
  uid_t user_;
  Descriptor listener_, epoll_;
  std::array<Descriptor, slot_count> outgoing_;
  std::array<TimePoint, slot_count> refused_until_{};  // no second look at a missing owner before this
  std::vector<Descriptor> incoming_;
  std::vector<std::byte> buffers_;
  int peers_ = 0;
  bool departure_ = false;
  bool arrival_ = true;  // since we connected to everybody
};

}  // namespace beeline::port
