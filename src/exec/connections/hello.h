// What the ranks tell each other, over the control connections, before they connect.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "exec/communicator.h"

namespace beeline::exec {

// Must agree on all ranks.
struct Terms {
  int size = 1;
  std::uint32_t communicator = 0;
  std::uint32_t piece_bytes = 0;
};

struct Hello {
  Rank rank;
  Terms terms;
  std::vector<verbs::QpAddress> addresses;  // by rank: where that rank finds us
};

std::vector<std::byte> encode(const Hello& hello);

// What rank `from` said, checked against what must agree and against nonsense.
Result<Hello> decode_hello(Bytes bytes, Rank from, const Terms& ours);

}  // namespace beeline::exec
