// Small steps of reading text that other programs and the kernel wrote.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace beeline::doctor {

std::string_view trim(std::string_view text);
std::vector<std::string> lines_of(std::string_view text);
// Without empty pieces.
std::vector<std::string> split(std::string_view text, std::string_view separators);
// The decimal number that `text` starts with, after blanks.
std::optional<std::int64_t> number(std::string_view text);
std::optional<double> decimal(std::string_view text);
// "KEY: value" in some line: the value, trimmed. The key stands first on its line.
std::optional<std::string> field(std::string_view text, std::string_view key, char separator = ':');
bool contains(std::string_view text, std::string_view part);
bool starts_with(std::string_view text, std::string_view part);
std::string lower(std::string_view text);
std::string join(const std::vector<std::string>& parts, std::string_view between);

}  // namespace beeline::doctor
