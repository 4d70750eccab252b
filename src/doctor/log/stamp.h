// Times as logs write them.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace beeline::doctor::log {

// Clocks that cannot be compared with each other. `date` is a month, a day and a time: PyTorch and
// syslog leave the year out, so nobody's year counts.
enum class Clock : std::uint8_t { date, epoch, day, boot };
constexpr std::size_t clocks = 4;

struct Stamp {
  Clock clock = Clock::date;
  double seconds = 0;
};

// At most one per clock; NaN where a line has none.
struct Stamps {
  std::array<double, clocks> seconds;
  Stamps() { seconds.fill(std::numeric_limits<double>::quiet_NaN()); }
  double& operator[](Clock clock) { return seconds[static_cast<std::size_t>(clock)]; }
  double operator[](Clock clock) const { return seconds[static_cast<std::size_t>(clock)]; }
  bool has(Clock clock) const { return seconds[static_cast<std::size_t>(clock)] == (*this)[clock]; }
};

// A time at the front of `text`, which loses it. Nothing if there is none.
std::optional<Stamp> take_stamp(std::string_view& text);

}  // namespace beeline::doctor::log
