// What --check sends: bytes that tell queue pair, direction, iteration and offset, so
// that a message in the wrong place, an old one, or a torn one is seen.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace beeline::perf {

struct PatternKey {
  std::uint64_t iteration = 0;
  std::uint32_t queue_pair = 0;
  bool from_server = false;
};

void fill_pattern(MutableBytes bytes, const PatternKey& key);
// Every byte different from the pattern: a byte that never arrived is wrong for certain.
void fill_poison(MutableBytes bytes, const PatternKey& key);

struct PatternDamage {
  std::uint64_t wrong_bytes = 0;
  std::uint64_t first_offset = 0;  // when there are any
};
PatternDamage check_pattern(Bytes bytes, const PatternKey& key);

}  // namespace beeline::perf
