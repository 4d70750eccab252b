// Socket addresses of the commands, and which address of this host leads where.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "nic/card.h"

namespace beeline::preload::ucma {

struct Endpoint {
  sa_family_t family = AF_UNSPEC;
  IpAddress address;
  std::uint16_t port = 0;
  std::uint32_t scope_id = 0;

  bool is_wildcard() const { return address.is_zero() || address == IpAddress::v4(0, 0, 0, 0); }
};

// Nothing for a family that is not the internet's, or when the bytes do not hold all of it.
std::optional<Endpoint> endpoint_of(Bytes sockaddr_bytes);
// AF_UNSPEC: all zero.
void store(const Endpoint& endpoint, sockaddr_in6& out);

// The address that the system sends from to reach `destination`, or a negative errno.
struct Route {
  int error = 0;
  Endpoint source;
};
Route route_to(const Endpoint& destination);

struct DevicePlace {
  int device = 0;
  std::uint8_t gid_index = 0;
};
std::optional<DevicePlace> device_with(const nic::Card& card, const IpAddress& address);

}  // namespace beeline::preload::ucma
