#include "cli/device_counters.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/interface_counters.h"

namespace beeline::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* rx_bytes = "rx_bytes";
constexpr const char* tx_bytes = "tx_bytes";
constexpr const char* rx_packets = "rx_packets";
constexpr const char* tx_packets = "tx_packets";

// Names of a port's counters that say the same as an interface's, and their unit in ours: those of the
// kernel's RDMA core, of rdma_rxe and of EFA.
struct PortName {
  const char* kernel;
  const char* ours;
  std::uint64_t factor;
};
constexpr PortName port_names[] = {
    {"port_rcv_data", rx_bytes, 4},      {"port_xmit_data", tx_bytes, 4},
    {"port_rcv_packets", rx_packets, 1}, {"port_xmit_packets", tx_packets, 1},
    {"rcvd_pkts", rx_packets, 1},        {"sent_pkts", tx_packets, 1},
    {"rx_pkts", rx_packets, 1},          {"tx_pkts", tx_packets, 1},
};

std::optional<std::uint64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

void add(std::map<std::string, std::uint64_t>& values, const std::string& name, std::uint64_t value) {
  for (const PortName& row : port_names)
    if (name == row.kernel) {
      values[row.ours] = value * row.factor;
      return;
    }
  values[name] = value;
}

// Among the counters, but none: for how many milliseconds the kernel takes what it read for fresh.
constexpr const char* lifespan = "lifespan";

void read_directory(const fs::path& directory, std::map<std::string, std::uint64_t>& values) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored))
    if (const auto value = read_number(entry.path()); value && entry.path().filename() != lifespan)
      add(values, entry.path().filename(), *value);
}

bool is_named_for_a_rate(const std::string& name) {
  return name == rx_bytes || name == tx_bytes || name == rx_packets || name == tx_packets;
}

}  // namespace

DeviceCounters read_counters(const verbs::DeviceSummary& device, const std::optional<fs::path>& copy) {
  const fs::path sys = copy.value_or("/sys");
  DeviceCounters counters{device.name, device.port, "port counters", {}};
  const fs::path port = sys / "class/infiniband" / device.name / "ports" / std::to_string(device.port);
  read_directory(port / "counters", counters.values);
  read_directory(port / "hw_counters", counters.values);
  if (counters.values.empty() && !device.netdev.empty()) {
    counters.source = "interface " + device.netdev;
    if (copy)
      read_directory(sys / "class/net" / device.netdev / "statistics", counters.values);
    else
      counters.values = interface_counters(device.netdev);
  }
  return counters;
}

std::optional<int> numa_node(const verbs::DeviceSummary& device, const fs::path& sys) {
  for (const fs::path& place : {sys / "class/infiniband" / device.name, sys / "class/net" / device.netdev}) {
    std::ifstream file(place / "device/numa_node");
    int node = -1;
    if (file >> node && node >= 0) return node;
  }
  return std::nullopt;
}

DeviceRates rates_between(const DeviceCounters& before, const DeviceCounters& after, Duration elapsed) {
  const double seconds = std::chrono::duration<double>(elapsed).count();
  const auto per_second = [&](const std::string& name) {
    const auto old_value = before.values.find(name), new_value = after.values.find(name);
    if (old_value == before.values.end() || new_value == after.values.end()) return 0.0;
    if (new_value->second <= old_value->second || seconds <= 0) return 0.0;
    return static_cast<double>(new_value->second - old_value->second) / seconds;
  };
  DeviceRates rates;
  rates.device = after.device;
  rates.port = after.port;
  rates.rx_GBps = per_second(rx_bytes) / 1e9;
  rates.tx_GBps = per_second(tx_bytes) / 1e9;
  rates.rx_kpps = per_second(rx_packets) / 1e3;
  rates.tx_kpps = per_second(tx_packets) / 1e3;
  for (const auto& [name, value] : after.values) {
    if (is_named_for_a_rate(name)) continue;
    if (const double rate = per_second(name); rate > 0) rates.other[name] = rate;
  }
  return rates;
}

std::string counters_text(const DeviceCounters& device) {
  std::string text =
      fmt::format("\n{} port {} ({}; zeros left out)\n", device.device, device.port, device.source);
  for (const auto& [name, value] : device.values)
    if (value != 0) text += fmt::format("  {:<44}{}\n", name, value);
  return text;
}

std::string rates_text(const std::vector<DeviceRates>& rates) {
  std::string text = fmt::format("{:<16}{:>10}{:>10}{:>12}{:>12}  {}\n", "device", "in GB/s", "out GB/s",
                                 "in kpkt/s", "out kpkt/s", "what else changed, per second");
  for (const DeviceRates& row : rates) {
    const std::string name = row.port == 1 ? row.device : fmt::format("{} port {}", row.device, row.port);
    text += fmt::format("{:<16}{:>10.3f}{:>10.3f}{:>12.1f}{:>12.1f} ", name, row.rx_GBps, row.tx_GBps,
                        row.rx_kpps, row.tx_kpps);
    for (const auto& [counter, rate] : row.other) text += fmt::format(" {} {:.0f}", counter, rate);
    text += '\n';
  }
  return text;
}

std::string rates_json(const std::vector<DeviceRates>& rates, Duration since_start) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const DeviceRates& row : rates)
    list.push_back({{"name", row.device},
                    {"port", row.port},
                    {"rx_GBps", row.rx_GBps},
                    {"tx_GBps", row.tx_GBps},
                    {"rx_kpps", row.rx_kpps},
                    {"tx_kpps", row.tx_kpps},
                    {"other_per_s", row.other}});
  const nlohmann::ordered_json out = {
      {"version", 1}, {"seconds", std::chrono::duration<double>(since_start).count()}, {"rates", list}};
  return out.dump() + "\n";
}

}  // namespace beeline::cli
