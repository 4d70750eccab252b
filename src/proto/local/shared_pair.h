// What two queue pairs of different processes share on the local lane: one ring of requests per
// direction, and one line per side with what it has done about the other's requests.
//
// Everything in here can be changed at any time by whoever is on the other side: values are copied
// out once and checked before they are used, and indices come from our own counters only.
//
//   requester                                    responder
//   fills slot n, then its `turn`       ──►      sees the turn, copies the header, executes
//   takes the answer, the slot is free  ◄──      `executed` = n + 1
//
// A READ is answered in the payload of its own slot. A large one is not: the responder offers the
// address of its bytes, the requester copies them out of the other process (PeerMemory) and says
// so, and the responder looks whether they were its to offer all the time. So nobody ever
// writes into another process's memory, and nobody waits inside a gate for another process.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/types.h"

namespace beeline::proto::local {

inline constexpr std::uint32_t slot_count = 64;      // of each direction
inline constexpr std::uint32_t piece_bytes = 4096;   // payload of a slot
inline constexpr std::uint32_t header_payload = 32;  // of which so much lies in the slot's header

// How a request carries its payload.
enum class Carry : std::uint8_t {
  none,       // no bytes, or an atomic's operands
  in_header,  // at most header_payload bytes
  in_slot,    // at most piece_bytes
  by_source,  // the slot names where the bytes lie in the requester's process
  by_offer,   // a READ: the responder names where they lie in its own
  placed,     // a WRITE: the requester has stored them where they are to go (nic/local/direct_writes.h)
};

namespace flag {
inline constexpr std::uint8_t first = 1, last = 2, solicited = 4;
}

// One line. The fields are the peer's to choose.
struct alignas(64) Slot {
  std::atomic<std::uint32_t> turn{0};  // turn_of(n) once request n lies here
  WrOpcode opcode{};
  std::uint8_t flags = 0;
  Carry carry{};
  std::uint8_t rnr_retry = 0;        // how often the requester would ask again; 7: for ever
  std::uint32_t length = 0;          // of the whole message
  std::uint32_t bytes = 0;           // of this piece
  std::uint64_t remote_address = 0;  // of a WRITE: of the message; of a READ: of this piece
  Key rkey{};
  std::uint32_t immediate = 0;  // or the key that a SEND makes invalid
  union {
    std::array<std::byte, header_payload> payload{};
    std::array<std::uint64_t, 2> operands;  // compare, swap or add
  };
};
static_assert(sizeof(Slot) == 64 && std::atomic<std::uint32_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free);

// Which turn request n (0, 1, …) is in its slot: never 0, which fresh memory holds.
constexpr std::uint32_t turn_of(std::uint64_t n) { return static_cast<std::uint32_t>(n / slot_count) + 1; }

// Where bytes lie in the process of whoever says so.
struct Source {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};

// Written by one side, read by the other.
struct alignas(64) SideLine {
  // Requests of the other side that are done, and below them an Answer: how the next one failed.
  std::atomic<std::uint64_t> executed{0};
  std::atomic<std::uint64_t> offered{
      0};  // READs of the other side: 1 + its number once its bytes are offered
  std::atomic<std::uint64_t> fetched{0};    // READs of our own: 1 + its number once its bytes are copied
  std::atomic<std::uint32_t> heartbeat{0};  // changes while this side works on a long request
  std::atomic<std::uint32_t> waits{0};      // for a receive request, which may take long
  std::atomic<std::uint32_t> closed{0};     // nothing more comes from this side
};

// How a request ended: 0, or what its requester is to be told. In the low byte of `executed`.
enum class Answer : std::uint8_t {
  ok,
  invalid_request,
  remote_access,
  remote_operation,
  not_ready,     // no receive request came in time
  source_fault,  // the requester's own bytes could not be read
};
constexpr std::uint64_t executed_word(std::uint64_t count, Answer answer) {
  return count << 8 | static_cast<std::uint64_t>(answer);
}

struct Direction {
  std::array<Slot, slot_count> slots;
  alignas(4096) std::array<std::array<std::byte, piece_bytes>, slot_count> payloads;
};

// The gate of memory that one side lets the other write to by itself (nic/local/direct_writes.h).
struct DirectGate {
  alignas(64) std::atomic<std::uint32_t> open{0};    // its owner's: which permission is in force; 0: none
  alignas(64) std::atomic<std::uint32_t> inside{0};  // the other side's: it writes now
};

// All zero is a fresh one.
struct SharedPair {
  std::array<SideLine, 2> sides;
  std::array<DirectGate, 2> gates;
  std::array<Direction, 2> directions;  // of the requests of side 0, of side 1
};

// What one process can do with the memory of the other; without, everything goes through the ring in pieces.
struct Reach {
  bool peer_reads_ours = false;
  bool we_read_peers = false;
  // Longer messages are copied directly. Below, two copies in user space, by both processors at once, take
  // less time than the system call and its walk through the pages.
  std::uint32_t direct_above_bytes = 33 * piece_bytes;
};

// The memory of the process at the other end.
class PeerMemory {
 public:
  enum class Copied : std::uint8_t { ok, there, here };  // or where the fault lies
  virtual ~PeerMemory() = default;
  // May change for the better in the beginning.
  virtual Reach reach() const = 0;
  // Copies `to.size()` bytes that lie there at `address`.
  virtual Copied read(std::uint64_t address, MutableBytes to) = 0;
};

}  // namespace beeline::proto::local
