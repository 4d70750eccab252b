// What the card counted, for the log.
#pragma once

#include <string>

#include "nic/card.h"

namespace beeline::nic {

// "received 120 packets (…), sent 118 (…)": what is zero and would mean trouble is left out.
std::string describe(const CardCounters& counters, const port::PortCounters& port = {});

}  // namespace beeline::nic
