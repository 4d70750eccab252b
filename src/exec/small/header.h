// What every parcel begins with: an encoded message that differs from call to call in its
// sequence only, so it is made once per kind of call.
#pragma once

#include <cstring>

#include "exec/message.h"

namespace beeline::exec {

inline void write_header(std::byte* slot, const MessageBuffer& header) {
  std::memcpy(slot, header.data(), message_bytes);
}

// Has whoever sent it made the same call as we? All of it is compared.
inline bool same_header(const std::byte* theirs, const MessageBuffer& ours) {
  std::uint64_t difference = 0;
  for (std::size_t i = 0; i < message_bytes; i += sizeof difference) {
    std::uint64_t a = 0, b = 0;
    std::memcpy(&a, theirs + i, sizeof a);
    std::memcpy(&b, ours.data() + i, sizeof b);
    difference |= a ^ b;
  }
  return difference == 0;
}

}  // namespace beeline::exec
