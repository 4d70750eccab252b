// Where one peer writes short parcels to, and the receiver looks for them: two letters, for calls in turn,
// and a word that says that the peer sleeps. One page for each peer, which nobody else can write to.
//
// A letter ends where its place ends. Its last words are its header without what a parcel has no use for, and at the
// very end the sequence, which lands last: whoever sees that may read the rest.
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

inline constexpr std::size_t postmark_bytes = 32;
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

// The last words of a letter, in network byte order as they are in a message.
struct Postmark {
  std::uint64_t call = 0, count = 0, communicator = 0, sequence = 0;

  static Postmark of(const MessageBuffer& header) {
    Postmark mark;
    std::memcpy(&mark.call, header.data(), 8);
    std::memcpy(&mark.sequence, header.data() + sequence_offset, 8);
    std::memcpy(&mark.count, header.data() + 16, 8);
    std::memcpy(&mark.communicator, header.data() + 24, 8);
    return mark;
  }
  // The header that such a letter stands for.
  MessageBuffer header() const {
    MessageBuffer header{};
    std::memcpy(header.data(), &call, 8);
    std::memcpy(header.data() + sequence_offset, &sequence, 8);
    std::memcpy(header.data() + 16, &count, 8);
    std::memcpy(header.data() + 24, &communicator, 8);
    return header;
  }
  // In front of the end of a letter that has arrived.
  static Postmark before(const std::byte* end) {
    Postmark mark;
    std::memcpy(&mark, end - postmark_bytes, postmark_bytes);
    return mark;
  }
  bool same_call(const Postmark& other) const {
    return ((call ^ other.call) | (count ^ other.count) | (communicator ^ other.communicator) |
            (sequence ^ other.sequence)) == 0;
  }
};
static_assert(sizeof(Postmark) == postmark_bytes);

// A word that a peer may write at this moment.
inline std::uint64_t peek(const std::byte* word) {
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(word)))
      .load(std::memory_order_acquire);
}

}  // namespace beeline::exec
