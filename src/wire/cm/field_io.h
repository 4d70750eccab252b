// Reads or writes fields of a message: a layout that is written once, as a template over these two,
// cannot differ between parsing and emitting.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/bytes.h"

namespace beeline::wire::cm {

// Bits are counted from the most significant one of the byte, as the specification does.
constexpr std::uint32_t load_bits(const std::byte* p, unsigned first, unsigned count) {
  std::uint32_t value = 0;
  for (unsigned bit = first; bit < first + count; ++bit)
    value = value << 1 | (load_u8(p + bit / 8) >> (7 - bit % 8) & 1u);
  return value;
}
constexpr void store_bits(std::byte* p, unsigned first, unsigned count, std::uint32_t value) {
  for (unsigned bit = first + count; bit-- > first; value >>= 1) {
    const auto mask = static_cast<std::byte>(1u << (7 - bit % 8));
    p[bit / 8] = (value & 1) != 0 ? p[bit / 8] | mask : p[bit / 8] & ~mask;
  }
}

class FieldReader {
 public:
  template <class M>
  using Ref = M&;

  explicit FieldReader(const std::byte* from) : from_(from) {}

  void u8(std::size_t at, auto& field) { set(field, load_u8(from_ + at)); }
  void u16(std::size_t at, auto& field) { set(field, load_be16(from_ + at)); }
  void u24(std::size_t at, auto& field) { set(field, load_be24(from_ + at)); }
  void u32(std::size_t at, auto& field) { set(field, load_be32(from_ + at)); }
  void u64(std::size_t at, auto& field) { set(field, load_be64(from_ + at)); }
  void bits(std::size_t at, unsigned first, unsigned count, auto& field) {
    set(field, load_bits(from_ + at, first, count));
  }
  template <class Byte, std::size_t n>
  void bytes(std::size_t at, std::array<Byte, n>& field) {
    std::memcpy(field.data(), from_ + at, n);
  }

 private:
  template <class Field>
  static void set(Field& field, std::uint64_t value) {
    field = static_cast<Field>(value);
  }
  const std::byte* from_;
};

// Writes over zeros. What does not fit into its field is cut.
class FieldWriter {
 public:
  template <class M>
  using Ref = const M&;

  explicit FieldWriter(std::byte* to) : to_(to) {}

  void u8(std::size_t at, const auto& field) { store_u8(to_ + at, static_cast<std::uint8_t>(field)); }
  void u16(std::size_t at, const auto& field) { store_be16(to_ + at, static_cast<std::uint16_t>(field)); }
  void u24(std::size_t at, const auto& field) { store_be24(to_ + at, static_cast<std::uint32_t>(field)); }
  void u32(std::size_t at, const auto& field) { store_be32(to_ + at, static_cast<std::uint32_t>(field)); }
  void u64(std::size_t at, const auto& field) { store_be64(to_ + at, static_cast<std::uint64_t>(field)); }
  void bits(std::size_t at, unsigned first, unsigned count, const auto& field) {
    store_bits(to_ + at, first, count, static_cast<std::uint32_t>(field));
  }
  template <class Byte, std::size_t n>
  void bytes(std::size_t at, const std::array<Byte, n>& field) {
    std::memcpy(to_ + at, field.data(), n);
  }

 private:
  std::byte* to_;
};

}  // namespace beeline::wire::cm
