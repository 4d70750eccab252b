// Time as a value. The protocol core never reads a clock: whoever drives it
// passes `now` in, which is what lets a whole network run in virtual time.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>

namespace beeline {

using Duration = std::chrono::nanoseconds;
using namespace std::chrono_literals;

// Nanoseconds since an epoch that the driver chose (the monotonic clock's, or 0 in a test).
struct TimePoint {
  std::int64_t ns = 0;

  friend constexpr auto operator<=>(TimePoint, TimePoint) = default;  // NOLINT(modernize-use-nullptr)
  friend constexpr TimePoint operator+(TimePoint t, Duration d) { return {t.ns + d.count()}; }
  friend constexpr TimePoint operator-(TimePoint t, Duration d) { return {t.ns - d.count()}; }
  friend constexpr Duration operator-(TimePoint a, TimePoint b) { return Duration{a.ns - b.ns}; }
  static constexpr TimePoint never() { return {INT64_MAX}; }
};

}  // namespace beeline
