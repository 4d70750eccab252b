// --json FILE
#pragma once

#include <string>

#include "base/result.h"

namespace beeline::cli {

// Can FILE be written? Asked before a long run, so that its result is not lost. Leaves a file that exists as
// it is, and none where there was none.
Result<void> probe_file(const std::string& path);
Result<void> write_file(const std::string& path, const std::string& text);

}  // namespace beeline::cli
