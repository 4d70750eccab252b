// Numbers of bytes as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace beeline {

// "65536", "64K", "8m", "1G" (powers of 1024). Nothing for anything else, and for what 64 bits do not hold.
std::optional<std::uint64_t> parse_byte_count(std::string_view text);

}  // namespace beeline
