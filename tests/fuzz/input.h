// Takes an input apart, from the front. Behind its end everything is zero.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/bytes.h"

namespace beeline::fuzz {

class Input {
 public:
  explicit Input(Bytes bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }
  Bytes rest() const { return rest_; }

  std::uint8_t u8() {
    const Bytes one = take(1);
    return one.empty() ? std::uint8_t{0} : load_u8(one.data());
  }
  std::uint16_t u16() {
    const std::uint8_t high = u8();
    return static_cast<std::uint16_t>(high << 8 | u8());
  }
  std::uint32_t u24() {
    const std::uint32_t high = u16();
    return high << 8 | u8();
  }
  // At most `bytes`.
  Bytes take(std::size_t bytes) {
    const Bytes front = rest_.first(std::min(bytes, rest_.size()));
    rest_ = rest_.subspan(front.size());
    return front;
  }

 private:
  Bytes rest_;
};

}  // namespace beeline::fuzz
