// What a process has one of: configuration, card, provider. Exported C symbols need a
// process-wide holder; this is it (with preload's, the only one). Made when the first
// communicator is, kept until the process ends.
//
// A fork: the child gives up every descriptor of card and groups (so that the parent's
// death is still seen, and UDP 4791 is not held), and starts anew when first used.
#pragma once

#include <cstdint>
#include <memory>

#include "base/config.h"
#include "base/result.h"
#include "bootstrap/group.h"
#include "nic/card.h"
#include "verbs/full_provider.h"
#include "verbs/provider.h"

namespace beeline::api {

struct Process {
  Config config;
  std::unique_ptr<nic::Card> card;  // none with BEELINE_PROVIDER=system
  std::unique_ptr<verbs::Provider> provider;
  verbs::FullProvider* soft = nullptr;  // the card's own part of `provider`; none without a card
};

// The process's card and provider, made if need be.
Result<Process*> this_process();
// The same, but makes nothing: null when nobody has asked for it yet.
Process* this_process_if_any();

// How often this process's ancestors have forked since they first used Beeline. What was made in
// another generation belongs to the parent and must not be touched.
std::uint64_t generation();

// Groups whose connections a fork's child has to close.
void enlist(bootstrap::Group* group);
void strike_off(bootstrap::Group* group);

}  // namespace beeline::api
