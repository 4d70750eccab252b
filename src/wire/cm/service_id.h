// Service ids of the RDMA connection manager: who listens on a port of a port space.
// IBTA annex A11: 0x0000'0000'01PP'pppp, PP the IP protocol; Linux uses further port spaces in the same way.
#pragma once

#include <cstdint>

namespace beeline::wire::cm {

enum class PortSpace : std::uint16_t { ipoib = 0x0002, tcp = 0x0106, udp = 0x0111, ib = 0x013F };

constexpr std::uint64_t service_id(PortSpace space, std::uint16_t port) {
  return std::uint64_t{static_cast<std::uint16_t>(space)} << 16 | port;
}
constexpr std::uint16_t port_of_service(std::uint64_t service) { return static_cast<std::uint16_t>(service); }
constexpr bool belongs_to(std::uint64_t service, PortSpace space) {
  return service >> 16 == static_cast<std::uint16_t>(space);
}

inline constexpr std::uint32_t udp_qkey = 0x01234567;  // of everybody in PortSpace::udp

}  // namespace beeline::wire::cm
