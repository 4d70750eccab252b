// How many seeds a randomized test runs: a sample by default, many with BEELINE_TEST_FULL=1.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace beeline::proto::testing {

// `what` names what one seed draws. Says on standard output what a full run covers.
inline std::uint64_t seed_count(std::uint64_t sample, std::uint64_t full, const char* what) {
  const char* value = std::getenv("BEELINE_TEST_FULL");
  if (value == nullptr || std::strcmp(value, "1") != 0) return sample;
  std::printf("sample space: seeds 1 ... %llu, each %s\n", static_cast<unsigned long long>(full), what);
  return full;
}

}  // namespace beeline::proto::testing
