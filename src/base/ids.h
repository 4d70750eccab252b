// Strong types for numbers that must not be mixed.
#pragma once

#include <compare>
#include <cstdint>

namespace beeline {

template <class Tag, class T = std::uint32_t>
struct Id {
  T value{};
  friend constexpr auto operator<=>(Id, Id) = default;  // NOLINT(modernize-use-nullptr)
};

using Qpn = Id<struct QpnTag>;         // queue pair number, 24 bits
using Key = Id<struct KeyTag>;         // lkey or rkey, 32 bits
using PdId = Id<struct PdTag>;         // protection domain
using Rank = Id<struct RankTag, int>;  // place in a group, 0 … size-1

// Packet sequence number: 24 bits, compared in a window of 2^23 (IBTA vol. 1, 9.7.2).
struct Psn {
  static constexpr std::uint32_t mask = 0xFFFFFF;
  std::uint32_t value = 0;

  friend constexpr bool operator==(Psn, Psn) = default;
  constexpr Psn operator+(std::uint32_t n) const { return {(value + n) & mask}; }
  constexpr Psn operator-(std::uint32_t n) const { return {(value - n) & mask}; }
  constexpr Psn& operator++() { return *this = *this + 1; }
};

// How far a is ahead of b, in -2^23 … 2^23-1.
constexpr std::int32_t distance(Psn a, Psn b) {
  const std::uint32_t d = (a.value - b.value) & Psn::mask;
  return d < 0x800000 ? static_cast<std::int32_t>(d) : static_cast<std::int32_t>(d) - 0x1000000;
}
constexpr bool before(Psn a, Psn b) { return distance(a, b) < 0; }

}  // namespace beeline
