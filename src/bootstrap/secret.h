// What only those know who belong together.
#pragma once

#include <array>
#include <cstddef>

#include "base/bytes.h"

namespace beeline::bootstrap {

using Secret = std::array<std::byte, 16>;

// Takes the same time for any two secrets.
inline bool equal(const Secret& a, Bytes b) {
  if (b.size() != a.size()) return false;
  std::byte difference{};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{};
}

}  // namespace beeline::bootstrap
