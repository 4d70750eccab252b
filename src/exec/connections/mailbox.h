// Where one peer writes short parcels to, and the receiver looks for them: two letters, for calls in turn,
// and a word that says that the peer sleeps. One page for each peer, which nobody else can write to.
//
// A letter ends where its place ends, with the first half of a message, which has the fingerprint
// (message.h). The sequence is its last word, which lands last: whoever sees that may read the rest.
//
//   … payload | kind … root | count | communicator | sequence
//
// All of it is the peer's to change at any time: nothing is read twice that a decision rests on.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "exec/message.h"

namespace beeline::exec {

inline constexpr std::size_t postmark_bytes = fingerprint_end;
static_assert(sequence_offset + sizeof(std::uint64_t) == postmark_bytes);
inline constexpr std::uint32_t letter_payload = 1024;  // at most
inline constexpr std::size_t letter_bytes = (letter_payload + postmark_bytes + 63) / 64 * 64;
inline constexpr std::size_t sleeper_offset = 2 * letter_bytes;
inline constexpr std::size_t mailbox_bytes = 4096;
static_assert(sleeper_offset + sizeof(std::uint64_t) <= mailbox_bytes);

// The end of the letter of this call in a mailbox that begins at `mailbox`, an address or an offset.
template <class Place>
constexpr Place letter_end(Place mailbox, std::uint64_t sequence) {
  return mailbox + (sequence % 2 + 1) * letter_bytes;
}

// A word that a peer may write at this moment.
inline std::uint64_t peek(const std::byte* word) {
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(word)))
      .load(std::memory_order_acquire);
}

}  // namespace beeline::exec
