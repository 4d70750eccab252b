// How long the connection manager waits. IBTA vol. 1, 12.7.22 … 12.7.34: times are 4.096 us * 2^n; the
// exponents and the number of tries are those of Linux's rdma_cm.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace beeline::proto::cm {

constexpr Duration time_of_exponent(unsigned exponent) {
  return Duration{std::int64_t{4096} << std::min(exponent, 31u)};
}

inline constexpr std::uint8_t response_timeout = 20;  // 4.3 s
inline constexpr std::uint8_t max_retries = 15;
inline constexpr std::uint8_t service_timeout = 24;         // how long a user may think: 69 s
inline constexpr std::uint8_t packet_life_time = 18;        // of a RoCE path
inline constexpr std::uint8_t ack_delay = 15;               // of this card
inline constexpr unsigned disconnect_retries = 5;           // nobody needs the answer
inline constexpr Duration first_interval = 250ms;           // a lost datagram need not cost seconds
inline constexpr Duration timewait = time_of_exponent(19);  // a packet's life, twice

// Tries come at 250 ms, 500 ms, … until the answer's own time is the interval.
constexpr Duration interval_of_try(unsigned tries, std::uint8_t exponent) {
  return std::min<Duration>(first_interval * (1 << std::min(tries, 10u)),
                            time_of_exponent(exponent) + 2 * time_of_exponent(packet_life_time));
}

// The ACK timeout of a path: twice its packet life time, and the peer's delay where that counts.
constexpr std::uint8_t ack_timeout_of(std::uint8_t life_time, std::uint8_t delay) {
  unsigned timeout = life_time + 1u;
  if (timeout >= delay)
    timeout += delay >= timeout - 1 ? 1 : 0;
  else
    timeout = delay + (timeout >= delay - 1u ? 1u : 0u);
  return static_cast<std::uint8_t>(std::min(timeout, 31u));
}

}  // namespace beeline::proto::cm
