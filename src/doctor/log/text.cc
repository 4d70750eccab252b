#include "doctor/log/text.h"

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

}  // namespace beeline::doctor::log
