// The composition root of the command-line tools: environment, card and verbs.
#pragma once

#include <memory>

#include "base/config.h"
#include "base/result.h"
#include "nic/card.h"
#include "verbs/provider.h"

namespace beeline::cli {

// Members are destroyed in reverse order: the provider before its card.
struct Engine {
  Config config;
  std::unique_ptr<nic::Card> card;  // none with BEELINE_PROVIDER=system
  std::unique_ptr<verbs::Provider> provider;
};

// Reads the environment, sets the log level, and makes the providers it asks for.
Result<Engine> open_engine();

}  // namespace beeline::cli
