#include "base/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <cstring>

namespace beeline {

std::string to_string(const IpAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  const bool v4 = address.is_v4();
  ::inet_ntop(v4 ? AF_INET : AF_INET6, address.bytes.data() + (v4 ? 12 : 0), text, sizeof text);
  return text;
}

std::string gid_string(const Gid& gid) {
  std::string text;
  for (std::size_t i = 0; i < 16; i += 2)
    text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", gid.bytes[i], gid.bytes[i + 1]);
  return text;
}

std::optional<IpAddress> parse_address(std::string_view text) {
  const std::string zero_terminated(text);
  std::array<std::uint8_t, 16> raw{};
  if (::inet_pton(AF_INET, zero_terminated.c_str(), raw.data()) == 1)
    return IpAddress::v4(raw[0], raw[1], raw[2], raw[3]);
  if (::inet_pton(AF_INET6, zero_terminated.c_str(), raw.data()) == 1) return IpAddress{raw};
  return std::nullopt;
}

}  // namespace beeline
