// How much may be under way at once. The depths of all queues follow from these numbers:
// credit exists by construction, and "receiver not ready" (RNR) never happens.
#pragma once

#include <cstddef>
#include <cstdint>

namespace beeline::exec {

// Pieces of a call that are worked on at the same time. Each has its own resources (a lane),
// so that a later piece can never hold what an earlier one needs to go on.
inline constexpr std::uint32_t lanes = 4;
// Adverts that one lane may have open with one peer.
inline constexpr std::uint32_t adverts_per_lane = 4;
inline constexpr std::uint32_t adverts_per_peer = lanes * adverts_per_lane;
// Staging slots of a lane. A lane advertises its receives in the plan's order, so on a ring one slot
// can be held by a partial sum that waits to be sent on, and one receives: two are enough.
inline constexpr std::uint32_t slots_per_lane = 2;

// What a peer can have sent that we have not taken yet: its open adverts, the data for ours, the
// description of this call and of the next one (ranks are never further apart), a goodbye. The parcel
// of a small call (small/small_run.h) keeps its slot until the call is over, that of the next call as well.
inline constexpr std::uint32_t receive_depth = 2 * adverts_per_peer + 4 + 2;

// The data that one rank has for another in a small call. What is longer is asked for by adverts. Every
// receive has to have room for it, so a large group gets less.
constexpr std::uint32_t parcel_bytes(int size) {
  return size <= 2 ? 65536 : size <= 4 ? 32768 : size <= 8 ? 8192 : size <= 32 ? 2048 : 512;
}
// Parcels on their way to one peer that the card reads from where they were put together. Two are never
// enough to wait for, since the peer is at most one call behind; the acknowledgement may come later.
inline constexpr std::uint32_t parcels_in_flight = 4;
// Letters (connections/mailbox.h) that the card may still have to read from where they were put together.
inline constexpr std::uint32_t letters_in_flight = 16;
// How many calls long messages take the place of letters after a rank had to be woken, and how far two ranks
// may be apart in counting them.
inline constexpr std::uint32_t calls_with_messages = 64, calls_apart = 3;
// Asked for; a device may grant less, or nothing.
inline constexpr std::uint32_t inline_bytes_wanted = 256;

// Only every 8th control message asks for a completion, all WRITEs do. A completion may come
// later than the peer's answer, so whoever posts asks for room first.
inline constexpr std::uint32_t signal_every = 8;
inline constexpr std::uint32_t send_depth = 2 * adverts_per_peer + 2 * signal_every;

// Calls that may wait behind the one that runs.
inline constexpr std::size_t queued_calls = 4096;

}  // namespace beeline::exec
