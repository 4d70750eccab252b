#include "port/udp/data_socket.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <string>

#include "port/udp/port_owner.h"
#include "port/udp/socket_address.h"
#include "port/udp/steering.h"

#ifndef UDP_NO_CHECK6_RX  // <linux/udp.h>, which does not mix with <netinet/udp.h>
#define UDP_NO_CHECK6_RX 102
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace beeline::port {
namespace {

constexpr int wanted_buffer_bytes = 4 << 20;

bool set(const Descriptor& socket, int level, int option, int value) {
  return ::setsockopt(socket.get(), level, option, &value, sizeof value) == 0;
}

// Beyond rmem_max or wmem_max if we have CAP_NET_ADMIN, else up to it.
void grow_buffer(const Descriptor& socket, int forced, int ordinary) {
  if (!set(socket, SOL_SOCKET, forced, wanted_buffer_bytes))
    set(socket, SOL_SOCKET, ordinary, wanted_buffer_bytes);
}

Result<Descriptor> make_socket(const IpAddress& address) {
  Descriptor socket(
      ::socket(address.is_v4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno(errno, fmt::format("cannot make a UDP socket for {}", to_string(address)));
  return socket;
}

bool never_fragment(const Descriptor& socket, bool v4) {
  if (v4) return set(socket, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  return set(socket, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE) &&
         set(socket, IPPROTO_IPV6, IPV6_DONTFRAG, 1);
}

// What arrives at a sending socket is dropped before it takes memory: nobody reads it.
bool drop_all_input(const Descriptor& socket) {
  sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog program{1, code};
  return ::setsockopt(socket.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
}

int bind_to(const Descriptor& socket, const IpAddress& address, std::uint16_t port, std::uint32_t scope_id) {
  SocketAddress name;
  const socklen_t length = fill(name, address, port, scope_id);
  return ::bind(socket.get(), &name.any, length) == 0 ? 0 : errno;
}

Result<Descriptor> make_data_socket(const IpAddress& address) {
  BEELINE_TRY(Descriptor socket, make_socket(address));
  const bool v4 = address.is_v4();
  if (!set(socket, SOL_SOCKET, SO_REUSEPORT, 1))
    return fail_errno(errno, "cannot share a UDP port (SO_REUSEPORT)");
  grow_receive_buffer(socket);
  // Without these two we miss congestion marks and peers that leave out the IPv6 checksum, no more.
  set(socket, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_RECVTOS : IPV6_RECVTCLASS, 1);
  if (!v4) set(socket, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
  never_fragment(socket, v4);
  return socket;
}

tl::unexpected<Error> not_on_this_host(const IpAddress& address) {
  return fail(Errc::not_found, "address {} is not on this host; `ip addr` lists the ones that are",
              to_string(address));
}

}  // namespace

Result<std::uint32_t> scope_of(const IpAddress& address) {
  if (address.is_v4() || !address.is_link_local()) return 0;
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return fail_errno(errno, "cannot list the interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  for (const ifaddrs* entry = raw; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET6) continue;
    SocketAddress name;
    __builtin_memcpy(&name.v6, entry->ifa_addr, sizeof name.v6);
    if (address_of(name) == address) return ::if_nametoindex(entry->ifa_name);
  }
  return not_on_this_host(address);
}

Result<Descriptor> open_data_socket(const IpAddress& address, std::uint32_t scope_id) {
  BEELINE_TRY(Descriptor socket, make_data_socket(address));
  // With a program attached before, bind succeeds for the first socket of a group only (the kernel
  // does not merge two groups). So a group has a program from the start, and probes find their index.
  attach_steering(socket.get(), SteeringTable{});
  int error = bind_to(socket, address, roce_port, scope_id);
  if (error == EADDRINUSE) {
    BEELINE_TRY(socket, make_data_socket(address));
    error = bind_to(socket, address, roce_port, scope_id);
  }
  switch (error) {
    case 0:
      return socket;
    case EADDRINUSE:
      return fail(Errc::in_use, "{}", describe_port_conflict(address));
    case EADDRNOTAVAIL:
      return not_on_this_host(address);
    default:
      return fail_errno(error, fmt::format("cannot bind UDP {} port {}", to_string(address), roce_port));
  }
}

Result<Descriptor> open_flow_socket(const IpAddress& address, std::uint16_t port, std::uint32_t scope_id) {
  BEELINE_TRY(Descriptor socket, make_socket(address));
  if (!never_fragment(socket, address.is_v4()))
    return fail_errno(errno, "cannot keep the kernel from fragmenting (IP_MTU_DISCOVER)");
  if (!drop_all_input(socket)) set(socket, SOL_SOCKET, SO_RCVBUF, 0);  // the kernel's minimum, then
  grow_buffer(socket, SO_SNDBUFFORCE, SO_SNDBUF);
  switch (const int error = bind_to(socket, address, port, scope_id)) {
    case 0:
      return socket;
    case EADDRINUSE:
      return Descriptor{};
    case EADDRNOTAVAIL:
      return not_on_this_host(address);
    default:
      return fail_errno(error, fmt::format("cannot bind UDP {} port {}", to_string(address), port));
  }
}

Result<void> mark_what_leaves(const Descriptor& socket, const IpAddress& address, IpMarks marks) {
  const bool v4 = address.is_v4();
  const int level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
  if (marks.traffic_class != 0 && !set(socket, level, v4 ? IP_TOS : IPV6_TCLASS, marks.traffic_class))
    return fail_errno(errno, fmt::format("cannot send with traffic class {:#x}", marks.traffic_class));
  if (marks.hop_limit != 0 && !set(socket, level, v4 ? IP_TTL : IPV6_UNICAST_HOPS, marks.hop_limit))
    return fail_errno(errno, fmt::format("cannot send with hop limit {}", marks.hop_limit));
  return {};
}

void show_hop_limits(const Descriptor& socket, bool v4) {
  set(socket, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_RECVTTL : IPV6_RECVHOPLIMIT, 1);
}

void take_merged_datagrams(const Descriptor& data_socket) { set(data_socket, IPPROTO_UDP, UDP_GRO, 1); }

void grow_receive_buffer(const Descriptor& socket) { grow_buffer(socket, SO_RCVBUFFORCE, SO_RCVBUF); }

std::size_t granted_receive_buffer() {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return 0;
  grow_receive_buffer(socket);
  int granted = 0;
  socklen_t length = sizeof granted;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &granted, &length);
  return granted > 0 ? static_cast<std::size_t>(granted) : 0;
}

}  // namespace beeline::port
