// Between IpAddress and what the socket calls want.
#pragma once

#include <netinet/in.h>

#include <cstdint>

#include "base/address.h"

namespace beeline::port {

inline constexpr std::uint16_t roce_port = 4791;  // IANA: roce

// Either family; small enough to have one per packet of a batch.
union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

// `scope_id` (an interface index) matters for IPv6 link-local addresses only.
inline socklen_t fill(SocketAddress& out, const IpAddress& address, std::uint16_t port,
                      std::uint32_t scope_id) {
  if (address.is_v4()) {
    out.v4 = {};
    out.v4.sin_family = AF_INET;
    out.v4.sin_port = htons(port);
    __builtin_memcpy(&out.v4.sin_addr, address.bytes.data() + 12, 4);
    return sizeof out.v4;
  }
  out.v6 = {};
  out.v6.sin6_family = AF_INET6;
  out.v6.sin6_port = htons(port);
  __builtin_memcpy(&out.v6.sin6_addr, address.bytes.data(), 16);
  if (address.is_link_local()) out.v6.sin6_scope_id = scope_id;
  return sizeof out.v6;
}

inline IpAddress address_of(const SocketAddress& from) {
  if (from.any.sa_family == AF_INET) {
    IpAddress address = IpAddress::v4(0, 0, 0, 0);
    __builtin_memcpy(address.bytes.data() + 12, &from.v4.sin_addr, 4);
    return address;
  }
  IpAddress address;
  if (from.any.sa_family == AF_INET6) __builtin_memcpy(address.bytes.data(), &from.v6.sin6_addr, 16);
  return address;
}

inline std::uint16_t port_of(const SocketAddress& from) {
  return ntohs(from.any.sa_family == AF_INET ? from.v4.sin_port : from.v6.sin6_port);
}

}  // namespace beeline::port
