// Values in messages, in network byte order: a writer that appends, and a reader that
// believes nothing. After the first read past the end every read gives zero or
// nothing, and complete() is false.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace beeline::bootstrap {

class RecordWriter {
 public:
  RecordWriter& u8(std::uint8_t value) {
    return raw(1, [=](std::byte* p) { store_u8(p, value); });
  }
  RecordWriter& u16(std::uint16_t value) {
    return raw(2, [=](std::byte* p) { store_be16(p, value); });
  }
  RecordWriter& u32(std::uint32_t value) {
    return raw(4, [=](std::byte* p) { store_be32(p, value); });
  }
  RecordWriter& u64(std::uint64_t value) {
    return raw(8, [=](std::byte* p) { store_be64(p, value); });
  }
  RecordWriter& bytes(Bytes value) {
    u32(static_cast<std::uint32_t>(value.size()));
    out_.insert(out_.end(), value.begin(), value.end());
    return *this;
  }
  RecordWriter& text(std::string_view value) { return bytes(std::as_bytes(std::span(value))); }

  Bytes view() const { return out_; }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  template <class Store>
  RecordWriter& raw(std::size_t size, Store store) {
    out_.resize(out_.size() + size);
    store(out_.data() + out_.size() - size);
    return *this;
  }
  std::vector<std::byte> out_;
};

class RecordReader {
 public:
  explicit RecordReader(Bytes input) : rest_(input) {}

  std::uint8_t u8() { return take(1) ? load_u8(at_) : std::uint8_t{0}; }
  std::uint16_t u16() { return take(2) ? load_be16(at_) : std::uint16_t{0}; }
  std::uint32_t u32() { return take(4) ? load_be32(at_) : 0; }
  std::uint64_t u64() { return take(8) ? load_be64(at_) : 0; }
  Bytes bytes(std::size_t limit) {
    const std::size_t size = u32();
    if (size > limit) bad_ = true;
    return take(size) ? Bytes(at_, size) : Bytes{};
  }
  std::string text(std::size_t limit) {
    const Bytes value = bytes(limit);
    std::string out(value.size(), '\0');
    if (!value.empty()) std::memcpy(out.data(), value.data(), value.size());
    return out;
  }

  // As many bytes as `out` holds: fewer or more are an error.
  void exactly(std::span<std::byte> out) {
    const Bytes value = bytes(out.size());
    if (value.size() != out.size()) bad_ = true;
    if (!bad_) std::memcpy(out.data(), value.data(), out.size());
  }

  // Everything was there, and nothing more.
  bool complete() const { return !bad_ && rest_.empty(); }

 private:
  bool take(std::size_t size) {
    if (bad_ || size > rest_.size()) {
      bad_ = true;
      return false;
    }
    at_ = rest_.data();
    rest_ = rest_.subspan(size);
    return true;
  }
  Bytes rest_;
  const std::byte* at_ = nullptr;
  bool bad_ = false;
};

// What a peer calls itself or reports is printed in messages: no control characters, no novels.
inline std::string printable(std::string_view text, std::size_t limit) {
  std::string out(text.substr(0, limit));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  return out;
}

}  // namespace beeline::bootstrap
