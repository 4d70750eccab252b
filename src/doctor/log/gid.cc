#include "doctor/log/gid.h"

#include "doctor/log/text.h"

namespace beeline::doctor::log {

std::optional<Gid> parse_gid(std::string_view text) {
  constexpr std::size_t longest = 45;
  if (text.size() > longest || text.find(':') == text.npos) return std::nullopt;
  return parse_address(text);
}

std::optional<Gid> parse_decimal_gid(std::string_view text) {
  Gid gid{};
  for (std::size_t i = 0; i < gid.bytes.size(); ++i) {
    const auto value = number(text);
    if (!value || *value < 0 || *value > 255) return std::nullopt;
    gid.bytes[i] = static_cast<std::uint8_t>(*value);
    text = trimmed(text);
    while (!text.empty() && is_digit(text.front())) text.remove_prefix(1);
    if (i + 1 < gid.bytes.size()) {
      if (text.empty() || text.front() != ':') return std::nullopt;
      text.remove_prefix(1);
    }
  }
  return gid;
}

}  // namespace beeline::doctor::log
