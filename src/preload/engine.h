// The process's card as the exported verbs and the emulated devices see it.
#pragma once

#include "base/result.h"
#include "nic/card.h"
#include "verbs/full_provider.h"

namespace beeline::preload {

struct Engine {
  nic::Card* card = nullptr;                // neither exists with BEELINE_PROVIDER=system
  verbs::FullProvider* provider = nullptr;  // the card's verbs
  bool machine_devices = true;              // not with BEELINE_PROVIDER=soft
};

// Made at the first call of a process, and anew at the first call of a fork's child. Shared with
// beeline.h (api/process.h): a process has one card.
Result<Engine> engine();

// The same, but makes nothing: empty members when there is no engine (yet).
Engine engine_if_any() noexcept;

}  // namespace beeline::preload
