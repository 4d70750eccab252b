// The run as text, in the shape that perftest users know.
#pragma once

#include <string>

#include "perf/result.h"

namespace beeline::perf {

std::string header_text(const Agreement& agreement, bool report_gbits);
std::string row_text(const Row& row, bool report_gbits);

}  // namespace beeline::perf
