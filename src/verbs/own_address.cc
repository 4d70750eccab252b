#include "verbs/own_address.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>

namespace beeline::verbs {
namespace {

bool is_of(const sockaddr* address, const Gid& gid) {
  if (address == nullptr) return false;
  if (gid.is_v4() && address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    return std::memcmp(gid.bytes.data() + 12, &v4.sin_addr, 4) == 0;
  }
  if (!gid.is_v4() && address->sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof v6);
    return std::memcmp(gid.bytes.data(), &v6.sin6_addr, 16) == 0;
  }
  return false;
}

bool is_here(const Gid& gid, bool in_doubt) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return in_doubt;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(raw, ::freeifaddrs);
  for (const ifaddrs* one = all.get(); one != nullptr; one = one->ifa_next)
    if (is_of(one->ifa_addr, gid)) return true;
  return false;
}

}  // namespace

OwnAddress::OwnAddress(const Gid& gid) : gid_(gid), was_here_(is_here(gid, false)) {}

std::string OwnAddress::loss() const {
  if (!was_here_ || is_here(gid_, true)) return {};
  return fmt::format("this host no longer has the address {}, which its connections use", to_string(gid_));
}

}  // namespace beeline::verbs
