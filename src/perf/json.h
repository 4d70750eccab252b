// The run as JSON: an interface, with a version.
#pragma once

#include <string>

#include "base/result.h"
#include "perf/result.h"

namespace beeline::perf {

// {"version":1, "environment":{…}, "results":[{"bytes":…, …}]}; GB is 10^9 bytes.
std::string to_json(const Report& report);

}  // namespace beeline::perf
