// Variables of the environment that look like Beeline's and are not: mostly mistyped, and else silently
// without effect.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace beeline {

struct UnknownVariable {
  std::string name;
  std::string warning;  // a sentence, which names the variable that was probably meant
};

// `environment`: entries "NAME=value". In their order.
std::vector<UnknownVariable> unknown_variables(const std::vector<std::string_view>& environment);
// The same for a process's `environ`.
std::vector<UnknownVariable> unknown_variables(const char* const* environment);

}  // namespace beeline
