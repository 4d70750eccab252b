// Slurm's short form of host names: "n[01-03,7],login1" is n01, n02, n03, n7 and login1.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace beeline::cli {

inline constexpr std::size_t most_hosts = 65536;

// Brackets may stand anywhere in a name, several times; a number keeps its leading zeros.
Result<std::vector<std::string>> expand_host_list(std::string_view text);

}  // namespace beeline::cli
