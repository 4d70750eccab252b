#include "doctor/printable.h"

#include <fmt/format.h>

#include <algorithm>

namespace beeline::doctor {
namespace {

constexpr std::string_view blanks = " \t\r";

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
  const auto first_kept = text.find_first_not_of(blanks);
  if (first_kept == text.npos) return {};
  text = text.substr(first_kept, text.find_last_not_of(blanks) - first_kept + 1);
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

}  // namespace beeline::doctor
