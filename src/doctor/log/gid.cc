#include "doctor/log/gid.h"

#include <arpa/inet.h>

#include <algorithm>
#include <string>

#include "doctor/log/text.h"

namespace beeline::doctor::log {

std::optional<Gid> parse_gid(std::string_view text) {
  if (text.size() > 45) return std::nullopt;
  Gid gid{};
  if (::inet_pton(AF_INET6, std::string(text).c_str(), gid.data()) != 1) return std::nullopt;
  return gid;
}

std::optional<Gid> parse_decimal_gid(std::string_view text) {
  Gid gid{};
  for (std::size_t i = 0; i < gid.size(); ++i) {
    const auto value = number(text);
    if (!value || *value < 0 || *value > 255) return std::nullopt;
    gid[i] = static_cast<std::uint8_t>(*value);
    text = trimmed(text);
    while (!text.empty() && is_digit(text.front())) text.remove_prefix(1);
    if (i + 1 < gid.size()) {
      if (text.empty() || text.front() != ':') return std::nullopt;
      text.remove_prefix(1);
    }
  }
  return gid;
}

bool is_zero(const Gid& gid) {
  return std::all_of(gid.begin(), gid.end(), [](std::uint8_t byte) { return byte == 0; });
}
bool is_link_local(const Gid& gid) { return gid[0] == 0xFE && (gid[1] & 0xC0) == 0x80; }
bool is_v4(const Gid& gid) {
  return gid[10] == 0xFF && gid[11] == 0xFF &&
         std::all_of(gid.begin(), gid.begin() + 10, [](auto byte) { return byte == 0; });
}

}  // namespace beeline::doctor::log
