// The monotonic clock, for deadlines.
#pragma once

#include "base/time.h"

namespace beeline::exec {

inline TimePoint now() {
  return {std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()).count()};
}

}  // namespace beeline::exec
