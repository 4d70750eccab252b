// GIDs as logs write them: IPv6 notation, or perftest's sixteen decimal numbers.
#pragma once

#include <optional>
#include <string_view>

#include "base/address.h"

namespace beeline::doctor::log {

std::optional<Gid> parse_gid(std::string_view text);
// "254:128:00:…": sixteen numbers below 256.
std::optional<Gid> parse_decimal_gid(std::string_view text);

}  // namespace beeline::doctor::log
