#include "doctor/peer/datagram.h"

#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.h"

namespace beeline::doctor::peer {
namespace {

constexpr std::uint64_t request_magic = 0x6265'6544'5251'3031;  // "beeDRQ01"
constexpr std::uint64_t answer_magic = 0x6265'6544'414E'3031;   // "beeDAN01"

struct Control {
  alignas(cmsghdr) std::byte bytes[CMSG_SPACE(sizeof(in6_pktinfo)) + CMSG_SPACE(sizeof(in_pktinfo))];
};

template <class Info>
void put_info(msghdr& message, int level, int type, const Info& info) {
  message.msg_controllen = CMSG_SPACE(sizeof info);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = level;
  header->cmsg_type = type;
  header->cmsg_len = CMSG_LEN(sizeof info);
  std::memcpy(CMSG_DATA(header), &info, sizeof info);
}

}  // namespace

void encode(const EchoRequest& value, std::span<std::byte> out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  store_be64(out.data(), request_magic);
  store_be64(out.data() + 8, value.secret);
  store_be32(out.data() + 16, value.sequence);
  store_be32(out.data() + 20, value.answer_bytes);
}

void encode(const EchoAnswer& value, std::span<std::byte> out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  store_be64(out.data(), answer_magic);
  store_be64(out.data() + 8, value.secret);
  store_be32(out.data() + 16, value.sequence);
  store_be32(out.data() + 20, value.received_bytes);
  store_be32(out.data() + 24, value.error);
  std::memcpy(out.data() + 28, value.arrived_on.data(), std::min<std::size_t>(value.arrived_on.size(), 15));
}

std::optional<EchoRequest> decode_request(std::span<const std::byte> bytes) {
  if (bytes.size() < least_datagram_bytes || load_be64(bytes.data()) != request_magic) return std::nullopt;
  return EchoRequest{
      load_be64(bytes.data() + 8), load_be32(bytes.data() + 16),
      std::clamp<std::uint32_t>(load_be32(bytes.data() + 20), least_datagram_bytes, most_datagram_bytes)};
}

std::optional<EchoAnswer> decode_answer(std::span<const std::byte> bytes) {
  if (bytes.size() < least_datagram_bytes || load_be64(bytes.data()) != answer_magic) return std::nullopt;
  EchoAnswer answer{load_be64(bytes.data() + 8), load_be32(bytes.data() + 16), load_be32(bytes.data() + 20),
                    load_be32(bytes.data() + 24), ""};
  for (std::size_t i = 28; i < 28 + 15 && bytes[i] != std::byte{0}; ++i) {
    const char c = static_cast<char>(bytes[i]);
    answer.arrived_on += c > 0x20 && c < 0x7F ? c : '?';
  }
  return answer;
}

SocketAddress socket_address(const IpAddress& address, std::uint16_t port) {
  SocketAddress result;
  if (address.is_v4()) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&v4.sin_addr, address.bytes.data() + 12, 4);
    std::memcpy(&result.storage, &v4, result.length = sizeof v4);
  } else {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&v6.sin6_addr, address.bytes.data(), 16);
    std::memcpy(&result.storage, &v6, result.length = sizeof v6);
  }
  return result;
}

IpAddress address_of(const sockaddr_storage& storage) {
  IpAddress address;
  if (storage.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &storage, sizeof v4);
    address = IpAddress::v4(0, 0, 0, 0);
    std::memcpy(address.bytes.data() + 12, &v4.sin_addr, 4);
  } else if (storage.ss_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &storage, sizeof v6);
    std::memcpy(address.bytes.data(), &v6.sin6_addr, 16);
  }
  return address;
}

beeline::Result<Descriptor> udp_socket(const IpAddress& address, std::uint16_t port) {
  const bool v4 = address.is_v4();
  Descriptor socket(::socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail_errno(errno, "opening a UDP socket");
  const int on = 1;
  if (v4) {
    const int probe = IP_PMTUDISC_PROBE;
    ::setsockopt(socket.get(), IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof probe);
    ::setsockopt(socket.get(), IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
  } else {
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    const int probe = IPV6_PMTUDISC_PROBE;
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, &probe, sizeof probe);
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
  }
  const auto bound = socket_address(address, port);
  if (::bind(socket.get(), bound.get(), bound.length) != 0)
    return fail_errno(errno, fmt::format("UDP {} port {}", to_string(address), port));
  return socket;
}

std::uint16_t bound_port(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length);
  sockaddr_in6 v6{};  // the port is at the same place in both families
  std::memcpy(&v6, &storage, sizeof v6);
  return ntohs(v6.sin6_port);
}

int send_through(int fd, std::span<const std::byte> bytes, const SocketAddress* to, const IpAddress& from,
                 unsigned interface) {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  SocketAddress target = to != nullptr ? *to : SocketAddress{};
  Control control{};
  msghdr message{};
  message.msg_name = to != nullptr ? &target.storage : nullptr;
  message.msg_namelen = to != nullptr ? target.length : 0;
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (interface != 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    if (from.is_v4()) {
      in_pktinfo info{};
      info.ipi_ifindex = static_cast<int>(interface);
      std::memcpy(&info.ipi_spec_dst, from.bytes.data() + 12, 4);
      put_info(message, IPPROTO_IP, IP_PKTINFO, info);
    } else {
      in6_pktinfo info{};
      info.ipi6_ifindex = interface;
      std::memcpy(&info.ipi6_addr, from.bytes.data(), 16);
      put_info(message, IPPROTO_IPV6, IPV6_PKTINFO, info);
    }
  }
  return ::sendmsg(fd, &message, MSG_NOSIGNAL) < 0 ? errno : 0;
}

std::optional<Arrival> receive_from(int fd, std::span<std::byte> room) {
  Arrival arrival;
  iovec piece{room.data(), room.size()};
  Control control{};
  msghdr message{};
  message.msg_name = &arrival.from.storage;
  message.msg_namelen = sizeof arrival.from.storage;
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const auto got = ::recvmsg(fd, &message, 0);
  if (got < 0) return std::nullopt;
  arrival.bytes = static_cast<std::size_t>(got);
  arrival.from.length = message.msg_namelen;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_PKTINFO) {
      in_pktinfo info{};
      std::memcpy(&info, CMSG_DATA(header), sizeof info);
      arrival.interface = static_cast<unsigned>(info.ipi_ifindex);
    } else if (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info{};
      std::memcpy(&info, CMSG_DATA(header), sizeof info);
      arrival.interface = info.ipi6_ifindex;
    }
  }
  return arrival;
}

std::string interface_name(unsigned index) {
  char name[IF_NAMESIZE] = {};
  return index != 0 && ::if_indextoname(index, name) != nullptr ? name : "";
}

}  // namespace beeline::doctor::peer
