#include "doctor/log/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace beeline::doctor::log {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (is_blank(text.front()) || text.front() == '\r')) text.remove_prefix(1);
  while (!text.empty() && (is_blank(text.back()) || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

bool equal_ignoring_case(std::string_view one, std::string_view other) {
  return one.size() == other.size() && std::equal(one.begin(), one.end(), other.begin(),
                                                  [](char a, char b) { return lower(a) == lower(b); });
}

std::size_t find(std::string_view text, std::string_view part, std::size_t from) {
  if (from > text.size()) return text.npos;
  const auto at = std::search(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(), part.begin(),
                              part.end(), [](char a, char b) { return lower(a) == lower(b); });
  return at == text.end() && !part.empty() ? text.npos : static_cast<std::size_t>(at - text.begin());
}

bool starts(std::string_view text, std::string_view part) {
  return equal_ignoring_case(text.substr(0, part.size()), part);
}

std::optional<std::string_view> after(std::string_view text, std::string_view key) {
  const auto at = find(text, key);
  if (at == text.npos) return std::nullopt;
  return text.substr(at + key.size());
}

std::optional<std::int64_t> number(std::string_view text) {
  text = trimmed(text);
  const bool negative = !text.empty() && text.front() == '-';
  if (negative) text.remove_prefix(1);
  if (text.empty() || !is_digit(text.front())) return std::nullopt;
  std::int64_t value = 0;
  for (const char c : text) {
    if (!is_digit(c)) break;
    if (value > (INT64_MAX - 9) / 10) return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return negative ? -value : value;
}

std::optional<std::int64_t> number_after(std::string_view text, std::string_view key) {
  const auto rest = after(text, key);
  return rest ? number(*rest) : std::nullopt;
}

std::optional<std::uint64_t> hex(std::string_view text) {
  text = trimmed(text);
  if (starts(text, "0x")) text.remove_prefix(2);
  std::uint64_t value = 0;
  std::size_t digits = 0;
  for (; digits < text.size() && is_hex(text[digits]); ++digits) {
    if (digits == 16) return std::nullopt;
    const char c = lower(text[digits]);
    value = value * 16 + static_cast<std::uint64_t>(is_digit(c) ? c - '0' : c - 'a' + 10);
  }
  if (digits == 0) return std::nullopt;
  return value;
}

std::string_view word(std::string_view text) {
  text = trimmed(text);
  return text.substr(0, text.find_first_of(" \t\r,;()[]{}'\"<>"));
}

std::string_view word_after(std::string_view text, std::string_view key) {
  const auto rest = after(text, key);
  return rest ? word(*rest) : std::string_view{};
}

std::string_view take_word(std::string_view& rest) {
  rest = trimmed(rest);
  const auto end = std::min(rest.find_first_of(" \t"), rest.size());
  const std::string_view taken = rest.substr(0, end);
  rest.remove_prefix(end);
  return taken;
}

namespace {

// How many bytes the UTF-8 character at the front has; 0 if it is none.
std::size_t character_bytes(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t bytes = at(0) < 0x80                    ? 1
                            : at(0) >= 0xC2 && at(0) < 0xE0 ? 2
                            : at(0) >= 0xE0 && at(0) < 0xF0 ? 3
                            : at(0) >= 0xF0 && at(0) < 0xF5 ? 4
                                                            : 0;
  if (bytes == 0 || bytes > text.size()) return 0;
  for (std::size_t i = 1; i < bytes; ++i)
    if ((at(i) & 0xC0) != 0x80) return 0;
  if (bytes == 3 && ((at(0) == 0xE0 && at(1) < 0xA0) || (at(0) == 0xED && at(1) >= 0xA0))) return 0;
  if (bytes == 4 && ((at(0) == 0xF0 && at(1) < 0x90) || (at(0) == 0xF4 && at(1) >= 0x90))) return 0;
  // U+0080 … U+009F are control characters, and U+202A … U+202E, U+2066 … U+2069 reorder the line.
  if (bytes == 2 && at(0) == 0xC2 && at(1) < 0xA0) return 0;
  if (bytes == 3 && at(0) == 0xE2 &&
      ((at(1) == 0x80 && at(2) >= 0xAA && at(2) <= 0xAE) ||
       (at(1) == 0x81 && at(2) >= 0xA6 && at(2) <= 0xA9)))
    return 0;
  return bytes;
}

}  // namespace

std::string printable(std::string_view text, std::size_t longest) {
  text = trimmed(text);
  std::string safe;
  while (!text.empty()) {
    if (safe.size() >= longest) return safe + "…";
    const std::size_t bytes = character_bytes(text);
    const auto first = static_cast<unsigned char>(text.front());
    if (first == '\t') {
      safe += ' ';
    } else if (bytes == 0 || first < 0x20 || first == 0x7F) {
      safe += fmt::format("\\x{:02x}", first);
    } else {
      safe += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return safe;
}

}  // namespace beeline::doctor::log
