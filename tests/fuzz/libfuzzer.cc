// libFuzzer's entry point, compiled once per target.
#include <cstddef>
#include <cstdint>
#include <span>

#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  beeline::fuzz::BEELINE_FUZZ_TARGET(std::as_bytes(std::span(data, bytes)));
  return 0;
}
