// What interfaces the host has, from getifaddrs(3) and what it does not tell of IPv6.
#include <ifaddrs.h>
#include <linux/if_addr.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
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

// IPv6 addresses that cannot be used (yet): duplicate address detection runs on them, or has failed.
// Source: proc(5), /proc/net/if_inet6: address, interface, prefix length, scope, flags, name.
std::set<IpAddress> unusable_ipv6() {
  constexpr unsigned long unusable_flags = IFA_F_TENTATIVE | IFA_F_DADFAILED;
  std::set<IpAddress> found;
  std::ifstream table("/proc/net/if_inet6");
  std::string digits, index, prefix, scope, flags, name;
  while (table >> digits >> index >> prefix >> scope >> flags >> name) {
    if (digits.size() != 32 || (std::strtoul(flags.c_str(), nullptr, 16) & unusable_flags) == 0) continue;
    IpAddress address;
    for (std::size_t i = 0; i < address.bytes.size(); ++i)
      address.bytes[i] =
          static_cast<std::uint8_t>(std::strtoul(digits.substr(2 * i, 2).c_str(), nullptr, 16));
    found.insert(address);
  }
  return found;
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

Result<std::vector<Interface>> list_all_interfaces() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return fail_errno(errno, "cannot list the interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno(errno, "cannot make a socket to ask for MTUs");
  std::vector<Interface> interfaces;
  const std::set<IpAddress> unusable = unusable_ipv6();
  for (auto& [name, interface] : by_name(raw)) {
    std::erase_if(interface.addresses, [&](const IpAddress& address) { return unusable.contains(address); });
    interface.index = static_cast<int>(::if_nametoindex(name.c_str()));
    interface.mtu = mtu_of(socket, name);
    std::stable_partition(interface.addresses.begin(), interface.addresses.end(),
                          [](const IpAddress& address) { return address.is_v4(); });
    interfaces.push_back(std::move(interface));
  }
  std::sort(interfaces.begin(), interfaces.end(), comes_first);
  return interfaces;
}

Result<std::vector<Interface>> list_interfaces() {
  BEELINE_TRY(auto interfaces, list_all_interfaces());
  std::erase_if(interfaces, [](const Interface& interface) { return interface.addresses.empty(); });
  return interfaces;
}

}  // namespace beeline::port
