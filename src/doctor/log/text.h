// Small steps of scanning one line. Nothing here allocates, except what returns a string.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "doctor/printable.h"

namespace beeline::doctor::log {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
constexpr bool is_blank(char c) { return c == ' ' || c == '\t'; }
constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

std::string_view trimmed(std::string_view text);
bool equal_ignoring_case(std::string_view one, std::string_view other);
// Where `part` is in `text`, in any case; npos if it is not.
std::size_t find(std::string_view text, std::string_view part, std::size_t from = 0);
inline bool has(std::string_view text, std::string_view part) { return find(text, part) != text.npos; }
bool starts(std::string_view text, std::string_view part);
// What follows `key`; nothing if it does not occur.
std::optional<std::string_view> after(std::string_view text, std::string_view key);

// The decimal number that `text` starts with, after blanks; nothing for none and for too large ones.
std::optional<std::int64_t> number(std::string_view text);
std::optional<std::int64_t> number_after(std::string_view text, std::string_view key);
std::optional<std::uint64_t> hex(std::string_view text);  // with or without 0x
// Up to the next blank, comma, bracket or quote.
std::string_view word(std::string_view text);
std::string_view word_after(std::string_view text, std::string_view key);
// Takes the next word off the front of `rest`; words are separated by blanks.
std::string_view take_word(std::string_view& rest);

}  // namespace beeline::doctor::log
