// What `beeline devices` prints.
#pragma once

#include <string>
#include <vector>

#include "nic/card.h"
#include "verbs/verbs.h"

namespace beeline::cli {

std::string devices_table(const std::vector<verbs::DeviceSummary>& devices);
std::string devices_json(const std::vector<verbs::DeviceSummary>& devices);
// Limits and counters of the software card in this process.
std::string card_text(const nic::Limits& limits, const nic::CardCounters& counters,
                      const port::PortCounters& port, bool strict);

}  // namespace beeline::cli
