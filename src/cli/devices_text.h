// What `beeline devices` prints.
#pragma once

#include <string>
#include <vector>

#include "cli/device_counters.h"
#include "nic/card.h"
#include "verbs/verbs.h"

namespace beeline::cli {

// What verbs say of a device, and what the kernel says.
struct DeviceView {
  verbs::DeviceSummary summary;
  std::optional<int> numa_node;
  DeviceCounters counters;
};

std::string devices_table(const std::vector<DeviceView>& devices);
std::string devices_json(const std::vector<DeviceView>& devices);
// Limits and counters of the software card in this process.
std::string card_text(const nic::Limits& limits, const nic::CardCounters& counters,
                      const port::PortCounters& port, bool strict);
// Whether runs of packets leave from an address in one piece (UDP_SEGMENT).
struct TrainView {
  std::string device, address, reason;
  bool allowed = false;
};
std::string trains_text(const std::vector<TrainView>& addresses);

}  // namespace beeline::cli
