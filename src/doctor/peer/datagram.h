// The datagrams of the UDP tests. A request carries the secret of the conversation, so
// that a stranger gets no answer; the answer says what arrived and on which interface.
// Both are padded with zeros to the size under test.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/address.h"
#include "base/descriptor.h"
#include "base/result.h"

namespace beeline::doctor::peer {

inline constexpr std::size_t least_datagram_bytes = 64;
inline constexpr std::size_t most_datagram_bytes = 65507;

struct EchoRequest {
  std::uint64_t secret = 0;
  std::uint32_t sequence = 0;
  std::uint32_t answer_bytes = least_datagram_bytes;
};
struct EchoAnswer {
  std::uint64_t secret = 0;
  std::uint32_t sequence = 0;
  std::uint32_t received_bytes = 0;
  std::uint32_t error = 0;  // errno of an answer that was too large to be sent
  std::string arrived_on;   // interface
};

// Both need room for least_datagram_bytes.
void encode(const EchoRequest& value, std::span<std::byte> out);
void encode(const EchoAnswer& value, std::span<std::byte> out);
std::optional<EchoRequest> decode_request(std::span<const std::byte> bytes);
std::optional<EchoAnswer> decode_answer(std::span<const std::byte> bytes);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
SocketAddress socket_address(const IpAddress& address, std::uint16_t port);
IpAddress address_of(const sockaddr_storage& storage);

// A UDP socket bound to the address, never the wildcard; packets carry "do not fragment"
// whatever the kernel believes of the path; arrivals come with their interface.
beeline::Result<Descriptor> udp_socket(const IpAddress& address, std::uint16_t port);
std::uint16_t bound_port(int fd);

// `to` may be null on a connected socket; the packet leaves through `interface` unless 0. 0 or an errno.
int send_through(int fd, std::span<const std::byte> bytes, const SocketAddress* to, const IpAddress& from,
                 unsigned interface);
struct Arrival {
  std::size_t bytes = 0;
  SocketAddress from;
  unsigned interface = 0;
};
// Nothing, with errno, when nothing is there or an error was reported.
std::optional<Arrival> receive_from(int fd, std::span<std::byte> room);

// "eth0", or an empty string.
std::string interface_name(unsigned index);

}  // namespace beeline::doctor::peer
