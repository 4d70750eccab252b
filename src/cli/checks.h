// What option values must be, said by the parser before anything starts.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <string>

namespace beeline::cli {

// A number from `least` to `most`; the error and the help name both.
template <class Number>
CLI::Validator between(Number least, Number most) {
  const auto check = [least, most](std::string& text) -> std::string {
    Number value{};
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    // Whatever is no number, NaN too, fails the comparison.
    if (error == std::errc{} && stop == end && value >= least && value <= most) return {};
    return fmt::format("'{}' is no number from {} to {}", text, least, most);
  };
  return {check, fmt::format("{} ... {}", least, most)};
}

// An empty word is mostly a variable of a script that was not set: it must not mean the default.
inline CLI::Validator not_empty() {
  return {[](std::string& text) { return text.empty() ? std::string("is empty") : std::string(); }, ""};
}

}  // namespace beeline::cli
