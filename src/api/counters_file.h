// BEELINE_COUNTERS: what the process's card moved, written when the process ends.
#pragma once

#include <string>
#include <string_view>

#include "nic/card.h"

namespace beeline::api {

// One line of JSON. Lanes are listed by name, so that a test can tell which carried its bytes.
std::string counters_line(const nic::CardCounters& card, const port::PortCounters& port,
                          std::string_view program, int pid);

// From now on the process appends such a line to the file when it ends by exit() or by returning from
// main(). Once per process; a fork's child that never uses a card writes nothing.
void write_counters_at_exit(const std::string& path);

}  // namespace beeline::api
