// A message's pieces, as an executor takes them.
#pragma once

#include <cstdint>

#include "proto/types.h"
#include "wire/packet.h"

namespace beeline::proto {

// A piece of a SEND or WRITE, as big as the lane carries at once.
struct Fragment {
  bool is_write = false;
  bool first = false;
  bool last = false;
  bool has_immediate = false;  // meaningful in the last piece
  bool solicited = false;      // likewise
  bool invalidates = false;    // likewise, of a SEND
  std::uint32_t immediate = 0;
  std::uint64_t remote_address = 0;  // of a WRITE, in the first piece, with rkey and length
  Key rkey{};
  std::uint32_t length = 0;  // of the whole message
  Key invalidate{};
  Bytes payload;
  ByteSource* source = nullptr;    // where the payload comes from instead,
  std::uint32_t source_bytes = 0;  // and how much of it

  std::uint32_t bytes() const {
    return source != nullptr ? source_bytes : static_cast<std::uint32_t>(payload.size());
  }
};

// The piece that a packet of a SEND or WRITE carries.
Fragment fragment_of(const wire::PacketView& packet);

}  // namespace beeline::proto
