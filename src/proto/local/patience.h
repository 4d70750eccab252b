// How long the other process of a connection may leave something unanswered.
#pragma once

#include <algorithm>

#include "base/time.h"
#include "proto/reliability/retransmit_timer.h"
#include "proto/types.h"

namespace beeline::proto::local {

// A process that lives may be kept from running for a while.
inline constexpr Duration least_patience = 3s;

// What the wire would wait before it gives up (IBTA vol. 1, 9.7.6.1.3). Not of a time-out of 0: that is for
// ever.
constexpr Duration wire_patience(const QpAttr& attributes) {
  return ack_timeout(attributes.timeout) * (attributes.retry_count + 1);
}

// Not less than a process may be kept waiting.
constexpr Duration patience(const QpAttr& attributes) {
  return std::max<Duration>(wire_patience(attributes), least_patience);
}

}  // namespace beeline::proto::local
