#include "doctor/host/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

namespace beeline::doctor {

std::string_view trim(std::string_view text) {
  constexpr std::string_view blank(" \t\r\n\0", 5);
  const auto first = text.find_first_not_of(blank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

std::vector<std::string> split(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto end = std::min(text.find_first_of(separators), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::vector<std::string> lines_of(std::string_view text) { return split(text, "\n"); }

std::optional<std::int64_t> number(std::string_view text) {
  text = trim(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

std::optional<double> decimal(std::string_view text) {
  const std::string copy(trim(text));
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (end == copy.c_str()) return std::nullopt;
  return value;
}

std::optional<std::string> field(std::string_view text, std::string_view key, char separator) {
  for (const auto& line : lines_of(text)) {
    const auto at = line.find(separator);
    if (at == std::string::npos) continue;
    if (trim(std::string_view(line).substr(0, at)) == key)
      return std::string(trim(std::string_view(line).substr(at + 1)));
  }
  return std::nullopt;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool starts_with(std::string_view text, std::string_view part) { return text.substr(0, part.size()) == part; }

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::string join(const std::vector<std::string>& parts, std::string_view between) {
  std::string result;
  for (const auto& part : parts) {
    if (!result.empty()) result += between;
    result += part;
  }
  return result;
}

}  // namespace beeline::doctor
