// GIDs as logs write them: IPv6 notation, or perftest's sixteen decimal numbers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace beeline::doctor::log {

using Gid = std::array<std::uint8_t, 16>;

std::optional<Gid> parse_gid(std::string_view text);
// "254:128:00:…": sixteen numbers below 256.
std::optional<Gid> parse_decimal_gid(std::string_view text);

bool is_zero(const Gid& gid);
bool is_link_local(const Gid& gid);
bool is_v4(const Gid& gid);

}  // namespace beeline::doctor::log
