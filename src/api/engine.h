// Where the verbs of a process come from: the software card, the machine's libibverbs, or both,
// as BEELINE_PROVIDER says.
#pragma once

#include <memory>

#include "base/config.h"
#include "base/result.h"
#include "nic/card.h"
#include "verbs/full_provider.h"
#include "verbs/provider.h"

namespace beeline::api {

// Members are destroyed in reverse order: the provider before its card.
struct Engine {
  std::unique_ptr<nic::Card> card;  // none with BEELINE_PROVIDER=system
  std::unique_ptr<verbs::Provider> provider;
  verbs::FullProvider* soft = nullptr;  // the card's own part of `provider`; none without a card
};

// Opens no socket and no device yet. With "auto" the machine's own devices stand before bee0.
Result<Engine> make_engine(const Config& config);

}  // namespace beeline::api
