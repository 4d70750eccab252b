// The RNR NAK timer field as a duration (IBTA vol. 1, 9.7.5.2.8, table 45).
#pragma once

#include <array>
#include <cstdint>

#include "base/time.h"

namespace beeline::proto {

inline constexpr std::array<std::int64_t, 32> rnr_timer_us = {
    655'360, 10,     20,     30,     40,     60,      80,      120,     160,     240,    320,
    480,     640,    960,    1'280,  1'920,  2'560,   3'840,   5'120,   7'680,   10'240, 15'360,
    20'480,  30'720, 40'960, 61'440, 81'920, 122'880, 163'840, 245'760, 327'680, 491'520};

constexpr Duration rnr_wait(std::uint8_t index) {
  return std::chrono::microseconds{rnr_timer_us[index & 0x1F]};
}

}  // namespace beeline::proto
