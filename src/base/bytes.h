// Loads and stores in network byte order, at any alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace beeline {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

constexpr std::uint8_t load_u8(const std::byte* p) { return std::to_integer<std::uint8_t>(*p); }
constexpr std::uint16_t load_be16(const std::byte* p) {
  return static_cast<std::uint16_t>(load_u8(p) << 8 | load_u8(p + 1));
}
constexpr std::uint32_t load_be24(const std::byte* p) {
  return std::uint32_t{load_u8(p)} << 16 | std::uint32_t{load_u8(p + 1)} << 8 | load_u8(p + 2);
}
constexpr std::uint32_t load_be32(const std::byte* p) {
  return std::uint32_t{load_be16(p)} << 16 | load_be16(p + 2);
}
constexpr std::uint64_t load_be64(const std::byte* p) {
  return std::uint64_t{load_be32(p)} << 32 | load_be32(p + 4);
}
constexpr void store_u8(std::byte* p, std::uint8_t v) { *p = std::byte{v}; }
constexpr void store_be16(std::byte* p, std::uint16_t v) {
  store_u8(p, static_cast<std::uint8_t>(v >> 8));
  store_u8(p + 1, static_cast<std::uint8_t>(v));
}
constexpr void store_be24(std::byte* p, std::uint32_t v) {
  store_u8(p, static_cast<std::uint8_t>(v >> 16));
  store_be16(p + 1, static_cast<std::uint16_t>(v));
}
constexpr void store_be32(std::byte* p, std::uint32_t v) {
  store_be16(p, static_cast<std::uint16_t>(v >> 16));
  store_be16(p + 2, static_cast<std::uint16_t>(v));
}
constexpr void store_be64(std::byte* p, std::uint64_t v) {
  store_be32(p, static_cast<std::uint32_t>(v >> 32));
  store_be32(p + 4, static_cast<std::uint32_t>(v));
}

}  // namespace beeline
