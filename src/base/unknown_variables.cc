#include "base/unknown_variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/config.h"
#include "base/nearest.h"

namespace beeline {
namespace {

constexpr std::string_view prefix = "BEELINE_";
// What this project's scripts, build and tests read, and what `beeline run` tells its preload library.
constexpr std::array<std::string_view, 9> not_for_users = {
    "TEST_", "TORCH_", "FUZZ", "DEMO_", "BUILD", "LAB_", "SKIP_TORCH", "WRITE_DOCS", "RUN_TREE"};

}  // namespace

std::vector<UnknownVariable> unknown_variables(const std::vector<std::string_view>& environment) {
  std::vector<std::string_view> known;  // without the prefix, in which nobody errs who comes here
  for (const ConfigVariable& variable : config_variables())
    known.push_back(variable.name.substr(prefix.size()));
  std::vector<UnknownVariable> unknown;
  for (const std::string_view entry : environment) {
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!name.starts_with(prefix)) continue;
    const std::string_view rest = name.substr(prefix.size());
    const auto begins_rest = [&](std::string_view start) { return rest.starts_with(start); };
    if (std::find(known.begin(), known.end(), rest) != known.end() ||
        std::any_of(not_for_users.begin(), not_for_users.end(), begins_rest))
      continue;
    const std::string_view meant = nearest(rest, known);
    unknown.push_back(
        {std::string(name),
         fmt::format("there is no variable {}, so it changes nothing{}", name,
                     meant.empty() ? std::string() : fmt::format("; did you mean {}{}?", prefix, meant))});
  }
  return unknown;
}

std::vector<UnknownVariable> unknown_variables(const char* const* environment) {
  std::vector<std::string_view> entries;
  for (; *environment != nullptr; ++environment) entries.emplace_back(*environment);
  return unknown_variables(entries);
}

}  // namespace beeline
