// Steering: which socket of the SO_REUSEPORT group of an address gets which packet.
//
// All processes that serve one address share its port, and a classic BPF program
// of the group picks the socket by the high byte of the destination queue pair
// number: a table from slot to the socket's index in the group. Indices shift when
// a socket leaves (the kernel moves the last into the gap), so they are learned: a
// datagram that starts with the marker 0xFF, which is no RoCE opcode, goes to the
// socket whose index is its second byte; who receives such a probe answers the
// prober over the hand-over channel.
//
// A process learns when it opens the address, when another process ends (handover.h),
// when packets for it arrive by hand-over, and when its card misses an answer
// (Port::note_silence). Then it learns again until two rounds have told the same: what
// is asked while a socket joins or leaves may be out of date when it is answered. After that it is
// quiet. A packet in the wrong place is handed over, unless the process there is
// stopped: that is why nobody may rely on hand-over to hear that its index has shifted.
//
// On captures of the loopback interface probes show as 16-byte datagrams from 4791 to 4791.
#pragma once

#include <linux/filter.h>

#include <array>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/time.h"
#include "port/port.h"

namespace beeline::port {

struct Probe {
  std::uint8_t index = 0;  // who holds this index?
  Slot prober;
  std::uint64_t nonce = 0;
};
inline constexpr std::size_t probe_bytes = 16;
inline constexpr std::uint8_t probe_marker = 0xFF;
inline constexpr Duration round_time = 200ms;  // how long answers are waited for
std::array<std::byte, probe_bytes> encode(const Probe& probe);
std::optional<Probe> parse_probe(Bytes datagram);

// From slot to index in the group; -1 where it is not known.
struct SteeringTable {
  std::array<std::int16_t, 256> index_of_slot;
  SteeringTable() { index_of_slot.fill(-1); }
  friend bool operator==(const SteeringTable&, const SteeringTable&) = default;
};

// The program: probes by their index byte, known slots by the table, other slots by
// their own number (an index that does not exist makes the kernel choose by hash).
std::vector<sock_filter> steering_program(const SteeringTable& table);
bool attach_steering(int socket, const SteeringTable& table);

// One address's knowledge. Pure: it says what to send, its owner sends it.
class IndexLearner {
 public:
  struct Indices {
    int first = 0, count = 0;
  };

  // `members`: no more sockets than this are in the group, as far as we know. All their indices are asked
  // for at once: those of processes that are stopped never get an answer.
  void begin(std::uint64_t nonce, TimePoint now, int members = 0);
  // What to probe now; count is 0 when there is nothing to send.
  Indices take_probes();
  // An answer. True when table() is worth attaching: the round is complete, or it was
  // given up and this late answer adds to what is known.
  bool record(std::uint64_t nonce, std::uint8_t index, Slot holder);
  // True once, when the round's time is over: attach what is known.
  bool give_up_if_late(TimePoint now);

  bool active() const { return active_; }
  TimePoint deadline() const { return deadline_; }
  std::uint64_t nonce() const { return nonce_; }
  SteeringTable table() const;

 private:
  enum class Progress : std::uint8_t { waiting, wants_more, complete };
  Progress progress() const;

  bool active_ = false;
  std::uint64_t nonce_ = 0;
  TimePoint deadline_{};
  int probed_ = 0;  // indices 0 … probed_-1 were asked for
  int wanted_ = 0;
  std::array<std::int16_t, 256> holder_{};  // index -> slot, -1 where nobody answered
};

}  // namespace beeline::port
