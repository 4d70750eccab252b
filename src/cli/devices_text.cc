#include "cli/devices_text.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace beeline::cli {
namespace {

using Line = std::array<std::string, 10>;
constexpr std::size_t device_columns = 7;

std::string address_of(const verbs::DeviceSummary& device) {
  if (!device.trouble.empty()) return device.trouble;
  if (device.link != "Ethernet") return device.link + ", not RoCE: never used";
  return "no address";
}

Line device_line(const DeviceView& view) {
  const verbs::DeviceSummary& device = view.summary;
  return {device.port == 1 ? device.name : fmt::format("{} port {}", device.name, device.port),
          device.netdev.empty() ? "-" : device.netdev,
          device.active ? "active" : "down",
          device.gbit_per_s == 0 ? "-" : fmt::format("{} Gb/s", device.gbit_per_s),
          fmt::format("{}/{}", device.active_mtu_bytes, device.max_mtu_bytes),
          view.numa_node ? std::to_string(*view.numa_node) : "-",
          device.provider,
          "-",
          "-",
          address_of(device)};
}

// By index, whatever their type.
std::vector<verbs::GidSlot> all_gids(const verbs::DeviceSummary& device) {
  std::vector<verbs::GidSlot> all = device.other_gids;
  for (const verbs::GidChoice& gid : device.gids) all.push_back({gid.index, gid.gid});
  std::sort(all.begin(), all.end(),
            [](const verbs::GidSlot& a, const verbs::GidSlot& b) { return a.index < b.index; });
  return all;
}

std::vector<Line> lines_of(const std::vector<DeviceView>& devices) {
  std::vector<Line> lines = {{"device", "interface", "state", "rate", "MTU (active/max)", "NUMA", "provider",
                              "GID", "type", "address"}};
  for (const DeviceView& view : devices) {
    const verbs::DeviceSummary& device = view.summary;
    Line line = device_line(view);
    if (device.gids.empty()) {  // says why
      lines.push_back(line);
      for (std::size_t column = 0; column < device_columns; ++column) line[column].clear();
    }
    for (const verbs::GidSlot& gid : all_gids(device)) {
      line[device_columns] = std::to_string(gid.index);
      line[device_columns + 1] = verbs::gid_type_name(gid.type);
      line[device_columns + 2] = to_string(gid.gid);
      lines.push_back(line);
      for (std::size_t column = 0; column < device_columns; ++column) line[column].clear();
    }
  }
  return lines;
}

std::string counter_lines(std::initializer_list<std::pair<const char*, std::uint64_t>> counters) {
  std::string text;
  for (const auto& [name, value] : counters) text += fmt::format("  {:<44}{}\n", name, value);
  return text;
}

}  // namespace

std::string devices_table(const std::vector<DeviceView>& devices) {
  const auto lines = lines_of(devices);
  std::array<std::size_t, std::tuple_size_v<Line>> widths{};
  for (const Line& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  std::string text;
  for (const Line& line : lines) {
    std::string row;
    for (std::size_t i = 0; i < line.size(); ++i) row += fmt::format("{:<{}}  ", line[i], widths[i]);
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

std::string devices_json(const std::vector<DeviceView>& devices) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const DeviceView& view : devices) {
    const verbs::DeviceSummary& device = view.summary;
    Json gids = Json::array();
    for (const verbs::GidSlot& gid : all_gids(device))
      gids.push_back({{"index", gid.index},
                      {"type", verbs::gid_type_name(gid.type)},
                      {"address", to_string(gid.gid)},
                      {"gid", gid_string(gid.gid)}});
    list.push_back({{"name", device.name},
                    {"provider", device.provider},
                    {"port", device.port},
                    {"link", device.link},
                    {"interface", device.netdev},
                    {"active", device.active},
                    {"gbit_per_s", device.gbit_per_s},
                    {"active_mtu_bytes", device.active_mtu_bytes},
                    {"max_mtu_bytes", device.max_mtu_bytes},
                    {"guid", fmt::format("{:016x}", device.guid)},
                    {"numa_node", view.numa_node ? Json(*view.numa_node) : Json(nullptr)},
                    {"trouble", device.trouble},
                    {"gids", gids},
                    {"counters_of", view.counters.source},
                    {"counters", view.counters.values}});
  }
  const Json out = {{"version", 1}, {"devices", list}};
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string card_text(const nic::Limits& limits, const nic::CardCounters& counters,
                      const port::PortCounters& port, bool strict) {
  std::string text = "\nThe card in this process (RC over RoCE v2, UDP port 4791)\n";
  text += counter_lines({{"queue pairs, at most", limits.queue_pairs},
                         {"completion queues, at most", limits.completion_queues},
                         {"memory regions, at most", limits.regions},
                         {"work requests per queue, at most", limits.queue_depth},
                         {"pieces per work request, at most", limits.sges},
                         {"READs under way per queue pair, at most", limits.reads_per_qp}});
  text +=
      strict
          ? "\nHow a packet's ICRC is checked: exactly (strict). A raw socket shows the IP identification,\n"
            "which the ICRC covers over IPv4. (BEELINE_ICRC=plain: do without.)\n"
          : "\nHow a packet's ICRC is checked: over IPv6, and for our own packets, exactly. Over IPv4 it\n"
            "covers the IP identification, which a UDP socket does not show; then the packet is accepted\n"
            "if some identification explains its ICRC (\"affine\": 16 of the 32 bits still protect it).\n"
            "With CAP_NET_RAW, and without BEELINE_ICRC=plain, every packet is checked exactly.\n";
  text += counter_lines({{"packets received", counters.received},
                         {"  ICRC checked exactly", counters.icrc_exact},
                         {"  ICRC checked up to the IP identification", counters.icrc_affine},
                         {"  ICRC wrong: dropped", counters.icrc_bad},
                         {"  malformed: dropped", counters.malformed},
                         {"  for no queue pair here: dropped", counters.no_queue_pair},
                         {"  not from the queue pair's peer: dropped", counters.wrong_peer},
                         {"packets sent", counters.sent},
                         {"  memory could not be read", counters.send_faults},
                         {"  put off, the socket was full", counters.send_no_room},
                         {"payload bytes sent on the wire", counters.wire_payload_sent},
                         {"payload bytes received on the wire", counters.wire_payload_received},
                         {"payload bytes sent through shared memory", counters.local_payload_sent},
                         {"  by stores; no peer counts those received", counters.local_payload_stored},
                         {"payload bytes received through shared memory", counters.local_payload_received},
                         {"processes that memory is shared with", counters.local_processes},
                         {"  copied from directly; the others: in pieces", counters.local_processes_direct},
                         {"datagrams handed to another process", port.handed_over},
                         {"datagrams taken over from another process", port.taken_over},
                         {"hand-overs refused", port.hand_over_refused},
                         {"hand-overs of what we had", port.handed_over_twice},
                         {"datagrams with an odd IP header: dropped", port.ip_header_odd},
                         {"datagrams cut short", port.truncated},
                         {"datagrams that could not be sent", port.send_failures},
                         {"trains of packets sent", port.trains_sent},
                         {"  packets in them", port.packets_in_trains},
                         {"  refused by the kernel, and sent apart", port.trains_refused},
                         {"trains received", port.trains_received + counters.trains_received}});
  return text;
}

std::string trains_text(const std::vector<TrainView>& addresses) {
  std::string text = "\nSegmentation: whether runs of packets leave in one piece, which the kernel cuts\n";
  for (const TrainView& view : addresses)
    text += fmt::format("  {} {}: {} ({})\n", view.device, view.address, view.allowed ? "on" : "off",
                        view.reason);
  return text;
}

}  // namespace beeline::cli
