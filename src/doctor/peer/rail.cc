#include "doctor/peer/rail.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/descriptor.h"
#include "doctor/host/checks/qos_state.h"
#include "doctor/host/devices.h"
#include "doctor/host/text.h"
#include "doctor/peer/channel.h"
#include "doctor/printable.h"

namespace beeline::doctor::peer {
namespace {

constexpr std::size_t most_rails = 64, most_gids = 64, most_text = 80;

std::uint32_t link_mtu(const std::string& interface) {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  if (interface.empty() || interface.size() >= sizeof request.ifr_name) return 0;
  interface.copy(request.ifr_name, interface.size());
  if (!socket || ::ioctl(socket.get(), SIOCGIFMTU, &request) != 0) return 0;
  return static_cast<std::uint32_t>(std::max(request.ifr_mtu, 0));
}

// The largest RoCE MTU that a driver takes for this link: headers take up to 88 bytes.
std::uint32_t roce_mtu(std::uint32_t link_mtu_bytes) {
  for (std::uint32_t mtu = 4096; mtu >= 256; mtu /= 2)
    if (mtu + 88 <= link_mtu_bytes) return mtu;
  return 0;
}

void add_marking(Case& c, const Port& port, Rail& rail) {
  if (const auto marked = marked_dscp(c, port)) {
    rail.dscp = marked->dscp;
    rail.dscp_evidence = printable(marked->evidence, most_text);
  }
  if (rail.netdev.empty()) return;
  const auto qos = qos_state(c, rail.netdev);
  if (qos.trusts_dscp) rail.trust = *qos.trusts_dscp ? "dscp" : "pcp";
  if (qos.pfc) rail.pfc = qos.pfc_text();
}

Rail rail_of(Case& c, const Port& port) {
  Rail rail;
  rail.device = port.device;
  rail.netdev = port.netdev;
  for (const auto& gid : gids(c, port))
    rail.gids.push_back({gid.index, gid.gid, !gid.type_known ? "unknown" : gid.v2 ? "RoCE v2" : "RoCE v1"});
  rail.link_mtu_bytes = link_mtu(rail.netdev);
  rail.active_mtu_bytes = roce_mtu(rail.link_mtu_bytes);
  add_marking(c, port, rail);
  return rail;
}

Rail rail_of(Case& c, const verbs::DeviceSummary& device) {
  Rail rail;
  rail.device = device.name;
  rail.netdev = device.netdev;
  rail.driven = true;
  rail.active_mtu_bytes = device.active_mtu_bytes;
  rail.link_mtu_bytes = link_mtu(device.netdev);
  for (const auto& gid : device.gids) rail.gids.push_back({gid.index, gid.gid, "RoCE v2"});
  Port port;
  port.device = device.name;
  port.netdev = device.netdev;
  add_marking(c, port, rail);
  return rail;
}

// A software switch inside a host, docker0 for one, leads to no other host.
bool is_bridge(Case& c, const std::string& interface) {
  return !interface.empty() && c.directory("/sys/class/net/" + interface + "/bridge").found();
}

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string()
             ? printable(found->get_ref<const std::string&>(), most_text)
             : std::string();
}

std::int64_t number_of(const nlohmann::json& object, const char* key, std::int64_t least, std::int64_t most) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return least;
  return std::clamp(found->get<std::int64_t>(), least, most);
}

Rail rail_from_json(const nlohmann::json& row) {
  Rail rail;
  rail.device = text_of(row, "device");
  rail.netdev = text_of(row, "netdev");
  const auto driven = row.find("driven");
  rail.driven = driven != row.end() && driven->is_boolean() && driven->get<bool>();
  rail.active_mtu_bytes = static_cast<std::uint32_t>(number_of(row, "active_mtu", 0, 4096));
  rail.link_mtu_bytes = static_cast<std::uint32_t>(number_of(row, "link_mtu", 0, 65536));
  rail.dscp = static_cast<int>(number_of(row, "dscp", -1, 63));
  rail.dscp_evidence = text_of(row, "dscp_evidence");
  rail.trust = text_of(row, "trust");
  rail.pfc = text_of(row, "pfc");
  const auto gids = row.find("gids");
  if (gids == row.end() || !gids->is_array()) return rail;
  for (const auto& entry : *gids) {
    const auto address = entry.is_object() ? parse_address(text_of(entry, "address")) : std::nullopt;
    if (!address || rail.gids.size() == most_gids) continue;
    rail.gids.push_back(
        {static_cast<int>(number_of(entry, "index", 0, 65535)), *address, text_of(entry, "type")});
  }
  return rail;
}

}  // namespace

std::vector<IpAddress> Rail::addresses(bool with_loopback) const {
  std::vector<IpAddress> usable;
  for (const auto& gid : gids)
    if (gid.type == "RoCE v2" && !gid.address.is_link_local() && !gid.address.is_zero() &&
        gid.address.is_loopback() == with_loopback &&
        std::find(usable.begin(), usable.end(), gid.address) == usable.end())
      usable.push_back(gid.address);
  return usable;
}

bool HostFacts::only_loopback() const {
  return std::all_of(rails.begin(), rails.end(), [](const Rail& rail) {
    return std::all_of(rail.gids.begin(), rail.gids.end(), [](const RailGid& gid) {
      return gid.address.is_loopback() || gid.address.is_link_local();
    });
  });
}

HostFacts describe_host(Evidence& evidence, verbs::Provider* provider) {
  Case c(evidence);
  HostFacts host;
  host.name = printable(trim(c.fact("hostname").value), most_text);
  std::vector<std::string> covered;
  for (const auto& port : ports(c)) {
    if (!port.roce() || !port.active()) continue;
    host.rails.push_back(rail_of(c, port));
    covered.push_back(port.device);
    covered.push_back(port.netdev);
  }
  if (provider == nullptr) return host;
  const auto devices = verbs::summarize_devices(*provider);
  if (!devices) return host;
  for (const auto& device : *devices) {
    const auto known = [&](const std::string& name) {
      return !name.empty() && std::find(covered.begin(), covered.end(), name) != covered.end();
    };
    for (auto& rail : host.rails) rail.driven = rail.driven || rail.device == device.name;
    if (device.active && !known(device.name) && !known(device.netdev) && !is_bridge(c, device.netdev))
      host.rails.push_back(rail_of(c, device));
  }
  if (!host.only_loopback())
    std::erase_if(host.rails, [](const Rail& rail) {
      return rail.netdev == "lo" || (!rail.gids.empty() && rail.gids.front().address.is_loopback());
    });
  if (host.rails.size() > most_rails) host.rails.resize(most_rails);
  return host;
}

nlohmann::json to_json(const HostFacts& host) {
  nlohmann::json message = {{"type", "host"}, {"name", host.name}, {"rails", nlohmann::json::array()}};
  for (const auto& rail : host.rails) {
    auto gids = nlohmann::json::array();
    for (const auto& gid : rail.gids)
      gids.push_back({{"index", gid.index}, {"address", to_string(gid.address)}, {"type", gid.type}});
    message["rails"].push_back({{"device", rail.device},
                                {"netdev", rail.netdev},
                                {"driven", rail.driven},
                                {"active_mtu", rail.active_mtu_bytes},
                                {"link_mtu", rail.link_mtu_bytes},
                                {"dscp", rail.dscp},
                                {"dscp_evidence", rail.dscp_evidence},
                                {"trust", rail.trust},
                                {"pfc", rail.pfc},
                                {"gids", gids}});
  }
  return message;
}

beeline::Result<HostFacts> host_from_json(const nlohmann::json& message) {
  HostFacts host;
  host.name = text_of(message, "name");
  const auto rails = message.find("rails");
  if (rails == message.end() || !rails->is_array() || rails->size() > most_rails)
    return fail(Errc::protocol, "the other end does not tell its devices as a doctor does");
  for (const auto& row : *rails)
    if (row.is_object()) host.rails.push_back(rail_from_json(row));
  return host;
}

}  // namespace beeline::doctor::peer
