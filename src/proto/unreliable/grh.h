// The 40 bytes in front of a datagram's payload: what verbs call the GRH area. Over IPv6 it holds the IPv6
// header; over IPv4 its last 20 bytes hold the IPv4 header and the first 20 are zero (IBTA annex
// A17, 17.4.5).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/types.h"

namespace beeline::proto {

inline constexpr std::size_t grh_bytes = 40;

// `udp_bytes`: length of the UDP datagram, its header included. The receiving socket does not show the
// identification (IPv4) and the flow label (IPv6): both are zero.
std::array<std::byte, grh_bytes> grh_of(const Arrival& arrival, std::uint16_t udp_bytes);

}  // namespace beeline::proto
