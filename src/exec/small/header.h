// What every parcel begins with: an encoded message that differs from call to call in its
// sequence only, so it is made once per kind of call.
#pragma once

#include <cstring>

#include "exec/message.h"

namespace beeline::exec {

inline void write_header(std::byte* slot, const MessageBuffer& header) {
  std::memcpy(slot, header.data(), message_bytes);
}

// Has whoever sent it made the same call as we? The fingerprint is in the first half; of the rest a parcel
// has no use. GCC and clang make two comparisons of 16 bytes of it.
inline bool same_header(const std::byte* theirs, const MessageBuffer& ours) {
  typedef std::uint64_t Half __attribute__((vector_size(16)));  // NOLINT(modernize-use-using): clang's wish
  Half a[2], b[2];
  static_assert(sizeof a == fingerprint_end);
  std::memcpy(a, theirs, sizeof a);
  std::memcpy(b, ours.data(), sizeof b);
  const Half difference = (a[0] ^ b[0]) | (a[1] ^ b[1]);
  return (difference[0] | difference[1]) == 0;
}

}  // namespace beeline::exec
