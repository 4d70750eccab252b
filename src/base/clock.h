// The monotonic clock: the one place that reads it. Deadlines and durations come from here;
// the protocol core gets time as an argument instead (time.h).
#pragma once

#include "base/time.h"

namespace beeline {

inline TimePoint monotonic_now() {
  return {std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()).count()};
}

}  // namespace beeline
