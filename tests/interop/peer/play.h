// Plays one case, at one end.
#pragma once

#include "control.h"
#include "station.h"

namespace beeline::interop {

// {"statuses": [...], "state": ..., "wrong": ""}: what this end saw, and what it found wrong
// (empty: all is as the case demands).
Result<Json> play(const Card& card, const Case& which, bool requester, std::uint32_t mtu_bytes,
                  Control& control);

}  // namespace beeline::interop
