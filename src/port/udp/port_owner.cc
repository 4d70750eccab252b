#include "port/udp/port_owner.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "port/udp/socket_address.h"

namespace beeline::port {
namespace {

// The kernel prints addresses as 32-bit words in host order of what lies in network order.
std::optional<IpAddress> parse_kernel_address(const std::string& hex, bool v6) {
  if (hex.size() != (v6 ? 32u : 8u)) return std::nullopt;
  IpAddress address = v6 ? IpAddress{} : IpAddress::v4(0, 0, 0, 0);
  for (std::size_t word = 0; word < hex.size() / 8; ++word) {
    const auto value = static_cast<std::uint32_t>(std::strtoul(hex.substr(8 * word, 8).c_str(), nullptr, 16));
    std::memcpy(address.bytes.data() + (v6 ? 0 : 12) + 4 * word, &value, 4);
  }
  return address;
}

bool in_the_way(const IpAddress& bound, const IpAddress& address) {
  // An IPv6 wildcard socket takes IPv4 too unless it was told not to.
  return bound == address || bound.is_zero() || bound == IpAddress::v4(0, 0, 0, 0);
}

std::string user_name(uid_t user) {
  char buffer[1024];
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(user, &entry, buffer, sizeof buffer, &found) == 0 && found != nullptr)
    return fmt::format("{} (uid {})", found->pw_name, user);
  return fmt::format("uid {}", user);
}

std::string contents(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::optional<uid_t> find_port_owner(std::string_view table, bool v6, const IpAddress& address) {
  std::istringstream lines{std::string(table)};
  std::string line;
  while (std::getline(lines, line)) {
    // number: local:port remote:port state tx:rx timer:when retransmits uid …
    std::istringstream fields(line);
    std::string number, local, remote, state, queues, timer, retransmits;
    uid_t user = 0;
    if (!(fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user)) continue;
    const std::size_t colon = local.find(':');
    if (colon == std::string::npos || local.substr(colon + 1) != fmt::format("{:04X}", roce_port)) continue;
    const auto bound = parse_kernel_address(local.substr(0, colon), v6);
    if (bound && in_the_way(*bound, address)) return user;
  }
  return std::nullopt;
}

std::string describe_port_conflict(const IpAddress& address) {
  auto owner = find_port_owner(contents("/proc/net/udp"), false, address);
  if (!owner) owner = find_port_owner(contents("/proc/net/udp6"), true, address);
  const std::string where = fmt::format("UDP port {} on {}", roce_port, to_string(address));
  if (!owner) return fmt::format("{} is in use by another program; `ss -lunp` may show it", where);
  if (*owner != ::geteuid())
    return fmt::format(
        "{} is in use by a program of user {}; end it (`ss -lunp` shows it) or run as that user: only "
        "processes "
        "of one user can share the port",
        where, user_name(*owner));
  return fmt::format(
      "{} is in use by a program of yours, or the kernel's own (rdma_rxe), that does not share the port; end "
      "it "
      "(`ss -lunp` may show it)",
      where);
}

}  // namespace beeline::port
