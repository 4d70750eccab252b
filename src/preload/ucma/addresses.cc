#include "preload/ucma/addresses.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/descriptor.h"

namespace beeline::preload::ucma {
namespace {

constexpr std::uint16_t discard_port = 9;  // of a socket that never sends

}  // namespace

std::optional<Endpoint> endpoint_of(Bytes bytes) {
  if (bytes.size() < sizeof(sa_family_t)) return std::nullopt;
  Endpoint endpoint;
  std::memcpy(&endpoint.family, bytes.data(), sizeof endpoint.family);
  if (endpoint.family == AF_INET && bytes.size() >= sizeof(sockaddr_in)) {
    sockaddr_in v4;
    std::memcpy(&v4, bytes.data(), sizeof v4);
    endpoint.address = IpAddress::v4(0, 0, 0, 0);
    std::memcpy(endpoint.address.bytes.data() + 12, &v4.sin_addr, 4);
    endpoint.port = ntohs(v4.sin_port);
    return endpoint;
  }
  if (endpoint.family == AF_INET6 && bytes.size() >= sizeof(sockaddr_in6)) {
    sockaddr_in6 v6;
    std::memcpy(&v6, bytes.data(), sizeof v6);
    std::memcpy(endpoint.address.bytes.data(), &v6.sin6_addr, 16);
    endpoint.port = ntohs(v6.sin6_port);
    endpoint.scope_id = v6.sin6_scope_id;
    return endpoint;
  }
  return std::nullopt;
}

void store(const Endpoint& endpoint, sockaddr_in6& out) {
  std::memset(&out, 0, sizeof out);
  if (endpoint.family == AF_INET) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(endpoint.port);
    std::memcpy(&v4.sin_addr, endpoint.address.bytes.data() + 12, 4);
    std::memcpy(&out, &v4, sizeof v4);
  } else if (endpoint.family == AF_INET6) {
    out.sin6_family = AF_INET6;
    out.sin6_port = htons(endpoint.port);
    out.sin6_scope_id = endpoint.scope_id;
    std::memcpy(&out.sin6_addr, endpoint.address.bytes.data(), 16);
  }
}

Route route_to(const Endpoint& destination) {
  const Descriptor socket(::socket(destination.family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return {-errno, {}};
  Endpoint to = destination;
  to.port = discard_port;
  sockaddr_in6 name;
  store(to, name);
  const socklen_t length = destination.family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0) return {-errno, {}};
  sockaddr_in6 own{};
  socklen_t own_length = sizeof own;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &own_length) != 0) return {-errno, {}};
  auto source = endpoint_of(std::as_bytes(std::span(&own, 1)));
  if (!source) return {-EADDRNOTAVAIL, {}};
  source->port = 0;
  return {0, *source};
}

std::optional<DevicePlace> device_with(const nic::Card& card, const IpAddress& address) {
  const auto devices = card.devices();
  for (std::size_t i = 0; i < devices.size(); ++i)
    for (std::size_t g = 0; g < devices[i].gids.size(); ++g)
      if (devices[i].gids[g] == address)
        return DevicePlace{static_cast<int>(i), static_cast<std::uint8_t>(g)};
  return std::nullopt;
}

}  // namespace beeline::preload::ucma
