// Internet addresses and GIDs. A RoCE v2 GID is the interface's address: IPv6 as
// it is, IPv4 in its mapped form ::ffff:a.b.c.d (IBTA annex A17).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace beeline {

// 16 bytes in network order; also the GID. IPv4 is stored mapped.
struct IpAddress {
  std::array<std::uint8_t, 16> bytes{};

  // The check takes the 0 that the compiler compares the order with for a pointer.
  friend constexpr auto operator<=>(const IpAddress&,
                                    const IpAddress&) = default;  // NOLINT(modernize-use-nullptr)

  static constexpr IpAddress v4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, a, b, c, d}};
  }
  constexpr bool is_v4() const {
    for (int i = 0; i < 10; ++i)
      if (bytes[i] != 0) return false;
    return bytes[10] == 0xFF && bytes[11] == 0xFF;
  }
  constexpr bool is_link_local() const {
    return is_v4() ? bytes[12] == 169 && bytes[13] == 254 : bytes[0] == 0xFE && (bytes[1] & 0xC0) == 0x80;
  }
  constexpr bool is_loopback() const {
    if (is_v4()) return bytes[12] == 127;
    for (int i = 0; i < 15; ++i)
      if (bytes[i] != 0) return false;
    return bytes[15] == 1;
  }
  constexpr bool is_zero() const { return *this == IpAddress{}; }
};

using Gid = IpAddress;

std::string to_string(const IpAddress& address);  // "10.0.0.1" or "fe80::1"
std::string gid_string(const Gid& gid);           // "0000:0000:…", as show_gids prints it
std::optional<IpAddress> parse_address(std::string_view text);

}  // namespace beeline
