// What interfaces the host has, from getifaddrs(3).
#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <string>

#include "base/descriptor.h"
#include "port/udp/socket_address.h"
#include "port/udp/udp_port.h"

namespace beeline::port {
namespace {

std::uint32_t mtu_of(const Descriptor& socket, const std::string& name) {
  ifreq request{};
  name.copy(request.ifr_name, sizeof request.ifr_name - 1);
  if (::ioctl(socket.get(), SIOCGIFMTU, &request) != 0 || request.ifr_mtu < 0) return 0;
  return static_cast<std::uint32_t>(request.ifr_mtu);
}

void add_mac(Interface& interface, const ifaddrs& entry) {
  sockaddr_ll link{};
  std::memcpy(&link, entry.ifa_addr, sizeof link);
  if (link.sll_halen == interface.mac.size())
    std::memcpy(interface.mac.data(), link.sll_addr, link.sll_halen);
}

void add_address(Interface& interface, const ifaddrs& entry) {
  SocketAddress name{};
  std::memcpy(&name, entry.ifa_addr, entry.ifa_addr->sa_family == AF_INET ? sizeof name.v4 : sizeof name.v6);
  interface.addresses.push_back(address_of(name));
}

std::map<std::string, Interface> by_name(const ifaddrs* list) {
  std::map<std::string, Interface> found;
  for (; list != nullptr; list = list->ifa_next) {
    if (list->ifa_addr == nullptr) continue;
    // IPv4 addresses may carry a label, "eth0:1", in place of the interface's name.
    const std::string name = std::string(list->ifa_name).substr(0, std::string(list->ifa_name).find(':'));
    Interface& interface = found[name];
    interface.name = name;
    interface.loopback = (list->ifa_flags & IFF_LOOPBACK) != 0;
    interface.up = (list->ifa_flags & IFF_UP) != 0 && (list->ifa_flags & IFF_RUNNING) != 0;
    switch (list->ifa_addr->sa_family) {
      case AF_PACKET:
        add_mac(interface, *list);
        break;
      case AF_INET:
      case AF_INET6:
        add_address(interface, *list);
        break;
    }
  }
  return found;
}

bool comes_first(const Interface& a, const Interface& b) {
  if (a.loopback != b.loopback) return b.loopback;
  if (a.up != b.up) return a.up;
  return a.index < b.index;
}

}  // namespace

Result<std::vector<Interface>> list_interfaces() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return fail_errno(errno, "cannot list the interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno(errno, "cannot make a socket to ask for MTUs");
  std::vector<Interface> interfaces;
  for (auto& [name, interface] : by_name(raw)) {
    if (interface.addresses.empty()) continue;
    interface.index = static_cast<int>(::if_nametoindex(name.c_str()));
    interface.mtu = mtu_of(socket, name);
    std::stable_partition(interface.addresses.begin(), interface.addresses.end(),
                          [](const IpAddress& address) { return address.is_v4(); });
    interfaces.push_back(std::move(interface));
  }
  std::sort(interfaces.begin(), interfaces.end(), comes_first);
  return interfaces;
}

}  // namespace beeline::port
