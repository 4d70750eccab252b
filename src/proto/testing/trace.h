// A running hash of everything that happened: equal seeds must give equal traces.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace beeline::proto::testing {

class Trace {
 public:
  void add(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) mix(static_cast<std::uint8_t>(value >> (8 * i)));
  }
  void add(Bytes bytes) {
    for (const std::byte b : bytes) mix(std::to_integer<std::uint8_t>(b));
  }
  std::uint64_t value() const { return hash_; }

 private:
  // FNV-1a.
  void mix(std::uint8_t byte) { hash_ = (hash_ ^ byte) * 0x100000001B3u; }

  std::uint64_t hash_ = 0xCBF29CE484222325u;
};

}  // namespace beeline::proto::testing
