// What the card counted, for the log.
#pragma once

#include <string>

#include "nic/card.h"

namespace beeline::nic {

bool has_moved_anything(const CardCounters& counters);

// "120 packets received (…), 118 sent (…)": what is zero and would mean trouble is left out.
std::string describe(const CardCounters& counters, const port::PortCounters& port = {});

}  // namespace beeline::nic
