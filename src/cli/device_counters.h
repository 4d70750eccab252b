// What the kernel counts about a device: the counters of its port, or, for a card in software, those of the
// interface below it (which carries other traffic too); and where on the machine it sits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "verbs/verbs.h"

namespace beeline::cli {

// By name; bytes and packets are called rx_bytes, tx_bytes, rx_packets and tx_packets whatever the
// kernel calls them (port_rcv_data counts words of four bytes).
struct DeviceCounters {
  std::string device;
  std::uint8_t port = 1;
  std::string source;  // "port counters", "interface eth0"
  std::map<std::string, std::uint64_t> values;
};

// Of this host; with `sys`, of that from whose /sys it is a copy. Counters that are absent or cannot be read
// are left out.
DeviceCounters read_counters(const verbs::DeviceSummary& device,
                             const std::optional<std::filesystem::path>& sys = std::nullopt);
// Nothing where the device sits on no NUMA node, or nobody says.
std::optional<int> numa_node(const verbs::DeviceSummary& device, const std::filesystem::path& sys = "/sys");

// What changed between two readings of the same device.
struct DeviceRates {
  std::string device;
  std::uint8_t port = 1;
  double rx_GBps = 0, tx_GBps = 0;      // 10^9 bytes per second
  double rx_kpps = 0, tx_kpps = 0;      // thousand packets per second
  std::map<std::string, double> other;  // per second; only what changed
};
// A counter that went down (it wrapped, or the device was reset) counts as unchanged.
DeviceRates rates_between(const DeviceCounters& before, const DeviceCounters& after, Duration elapsed);

std::string counters_text(const DeviceCounters& device);
std::string rates_text(const std::vector<DeviceRates>& rates);
// One line of JSON.
std::string rates_json(const std::vector<DeviceRates>& rates, Duration since_start);

}  // namespace beeline::cli
