// Addresses, routes, ARP and filters between this host and the others.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "doctor/host/checks/groups.h"
#include "doctor/host/devices.h"
#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

// IPv4 addresses of the interfaces of active RoCE ports.
std::vector<Address> roce_addresses(Case& c) {
  std::vector<Address> found;
  const auto all = addresses(c);
  for (const auto& port : active_roce_ports(c))
    for (const auto& address : all)
      if (address.interface == port.netdev && parse_ipv4(address.ip) &&
          std::none_of(found.begin(), found.end(),
                       [&](const Address& other) { return other.ip == address.ip; }))
        found.push_back(address);
  return found;
}

// RoCE interfaces that share a subnet with another one of this host.
std::vector<Address> same_subnet(Case& c) {
  std::vector<Address> sharing;
  const auto all = roce_addresses(c);
  for (const auto& one : all)
    for (const auto& other : all)
      if (one.interface != other.interface && one.prefix < 32 && one.prefix == other.prefix &&
          (*parse_ipv4(one.ip) & ipv4_mask(one.prefix)) == (*parse_ipv4(other.ip) & ipv4_mask(one.prefix))) {
        sharing.push_back(one);
        break;
      }
  return sharing;
}

// The setting that counts is the larger one of "all" and the interface's.
struct Setting {
  std::int64_t value = 0;
  std::string evidence;
};
Setting setting(Case& c, const std::string& interface, const char* name) {
  const auto all = c.file(fmt::format("/proc/sys/net/ipv4/conf/all/{}", name));
  const auto own = c.file(fmt::format("/proc/sys/net/ipv4/conf/{}/{}", interface, name));
  return {std::max(number(all.value).value_or(0), number(own.value).value_or(0)),
          cite(all) + ", " + cite(own)};
}

bool none_shares(Case& c, const std::vector<Address>& sharing) {
  if (!sharing.empty()) return false;
  if (!active_roce_ports(c).empty())
    c.not_applicable("no two RoCE interfaces of this host are in one subnet");
  return true;
}

void arp_setting(Case& c, const char* name, std::int64_t least, const char* cause) {
  const auto sharing = same_subnet(c);
  if (none_shares(c, sharing)) return;
  for (const auto& address : sharing) {
    const auto found = setting(c, address.interface, name);
    if (found.value >= least)
      c.pass(found.evidence);
    else
      c.warn(fmt::format("{} {}/{}; {}", address.interface, address.ip, address.prefix, found.evidence),
             fmt::format("{} shares a subnet with another interface and {}", address.interface, cause),
             fmt::format("sysctl -w net.ipv4.conf.all.{}={}", name, least));
  }
}

void arp_ignore(Case& c) {
  arp_setting(c, "arp_ignore", 1,
              "answers ARP for the other's address (ARP flux): packets arrive at the wrong card");
}
void arp_announce(Case& c) { arp_setting(c, "arp_announce", 2, "may ask by ARP with the other's address"); }

void policy_routes(Case& c) {
  const auto sharing = same_subnet(c);
  if (none_shares(c, sharing)) return;
  const auto rules = c.command("ip -j rule");
  if (!rules.found()) return c.unreadable(rules);
  for (const auto& address : sharing) {
    if (contains(rules.value, "\"" + address.ip + "\""))
      c.pass(cite(rules, "a rule for " + address.ip));
    else
      c.warn(cite(rules, "no rule for source " + address.ip),
             fmt::format(
                 "{} shares a subnet with another interface, and nothing makes packets from {} leave by it",
                 address.interface, address.ip),
             fmt::format("ip rule add from {0} lookup 101 && ip route add SUBNET/{1} dev {2} src {0} table "
                         "101 (a table for each interface), or one subnet per rail",
                         address.ip, address.prefix, address.interface));
  }
}

void reverse_path(Case& c) {
  const auto all = roce_addresses(c);
  if (all.empty()) {
    if (!active_roce_ports(c).empty()) c.not_applicable("no RoCE interface with an IPv4 address here");
    return;
  }
  const bool sharing = !same_subnet(c).empty();
  for (const auto& address : all) {
    const auto found = setting(c, address.interface, "rp_filter");
    if (found.value != 1 || !sharing)
      c.pass(found.evidence);
    else
      c.warn(found.evidence,
             fmt::format("{} drops packets whose answer would leave by another interface, as happens with "
                         "several interfaces in one subnet",
                         address.interface),
             "sysctl -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf." + address.interface + ".rp_filter=2");
  }
}

void facing_public(Case& c) {
  const auto all = addresses(c);
  const auto rdma = roce_addresses(c);
  const bool have_roce = !ports(c).empty();
  // Without an RDMA device it is bee0 that binds to the addresses.
  const auto& exposed = have_roce ? rdma : all;
  bool any = false;
  for (const auto& address : exposed) {
    const auto value = parse_ipv4(address.ip);
    if (!value) continue;
    any = true;
    if (!public_address(*value))
      c.pass(fmt::format("getifaddrs(): {} {}", address.interface, address.ip));
    else
      c.warn(fmt::format("getifaddrs(): {} {} is a public address", address.interface, address.ip),
             "RoCE v2 (UDP port 4791) has no authentication: whoever reaches this address and guesses a "
             "queue pair and a packet number can write memory",
             "close UDP 4791 to the world at the edge, or use a private address for RoCE");
  }
  if (!any) c.not_applicable("no IPv4 address that RoCE would use");
}

void duplicate_address(Case& c) {
  std::map<std::string, std::string> seen;
  bool any = false;
  for (const auto& address : addresses(c)) {
    if (!parse_ipv4(address.ip) || address.interface == "lo") continue;
    any = true;
    const auto [other, fresh] = seen.emplace(address.ip, address.interface);
    if (!fresh && other->second != address.interface)
      c.fail(fmt::format("getifaddrs(): {} on {} and {}", address.ip, other->second, address.interface),
             "two interfaces of this host have one address",
             fmt::format("ip addr del {}/{} dev {}", address.ip, address.prefix, address.interface));
  }
  if (!any) return c.not_applicable("no IPv4 address besides the loopback's");
  c.pass(fmt::format("getifaddrs(): {} distinct IPv4 addresses", seen.size()));
}

// nlohmann's parser without exceptions.
nlohmann::json parsed(const Reading& reading) { return nlohmann::json::parse(reading.value, nullptr, false); }

std::string text_of(const nlohmann::json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string()
             ? object[key].get<std::string>()
             : std::string();
}

void neighbours(Case& c) {
  const auto active = active_roce_ports(c);
  if (active.empty()) return;
  const auto reading = c.command("ip -j neigh");
  if (!reading.found()) return c.unreadable(reading);
  std::string failed;
  const auto table = parsed(reading);
  if (table.is_array())
    for (const auto& row : table) {
      const bool ours = std::any_of(active.begin(), active.end(),
                                    [&](const Port& port) { return port.netdev == text_of(row, "dev"); });
      const bool lost = row.is_object() && row.contains("state") && contains(row["state"].dump(), "FAILED");
      if (ours && lost)
        failed += (failed.empty() ? "" : ", ") + text_of(row, "dst") + " on " + text_of(row, "dev");
    }
  if (failed.empty()) return c.pass(cite(reading, "no failed neighbour on a RoCE interface"));
  c.warn(cite(reading, "FAILED: " + failed),
         "hosts that this one tried to reach did not answer ARP or neighbour discovery: down, another VLAN "
         "or subnet mask",
         "ping -I INTERFACE ADDRESS; compare VLANs and masks at both ends");
}

void routes(Case& c) {
  const auto all = roce_addresses(c);
  if (all.empty()) {
    if (!active_roce_ports(c).empty()) c.not_applicable("no RoCE interface with an IPv4 address here");
    return;
  }
  const auto reading = c.command("ip -j route show table all");
  if (!reading.found()) return c.unreadable(reading);
  const auto table = parsed(reading);
  for (const auto& address : all) {
    bool found = false;
    if (table.is_array())
      for (const auto& row : table)
        found = found || (text_of(row, "dev") == address.interface && text_of(row, "type") != "local" &&
                          text_of(row, "type") != "broadcast");
    if (found || address.prefix == 32)
      c.pass(cite(reading, "a route through " + address.interface));
    else
      c.fail(
          cite(reading, "no route through " + address.interface),
          "packets from " + address.ip +
              " have no way out through its interface: ibv_modify_qp fails with 101 (Network is unreachable)",
          fmt::format("ip route add SUBNET/{} dev {} src {}", address.prefix, address.interface, address.ip));
  }
}

// A rule of nft against RoCE v2, whoever sends it. One against strangers (saddr, iif) is as it should be.
bool refuses_everybody(std::string_view rule) {
  return contains(rule, "4791") && (contains(rule, "drop") || contains(rule, "reject")) &&
         !contains(rule, "saddr") && !contains(rule, "iif");
}

void firewall(Case& c) {
  const auto all = ports(c);
  const bool software =
      all.empty() || std::any_of(all.begin(), all.end(), [](const Port& port) { return !port.hardware(); });
  if (!software)
    return c.not_applicable("the RoCE devices are cards: their packets do not pass the host's filter");
  const auto rules = c.command("nft list ruleset");
  if (!rules.found()) return c.unreadable(rules);
  for (const auto& line : lines_of(rules.value))
    if (refuses_everybody(line))
      return c.warn(
          cite(rules, trim(line)), "a rule drops or rejects RoCE v2 packets",
          "`nft -a list ruleset` shows the rule's handle; nft delete rule FAMILY TABLE CHAIN handle "
          "NUMBER");
  const bool drops = contains(rules.value, "hook input") &&
                     (contains(rules.value, "policy drop") || contains(rules.value, "reject"));
  if (!drops)
    return c.pass(
        cite(rules, trim(rules.value).empty() ? "no rules" : "no input chain that drops by default"));
  if (contains(rules.value, "4791")) return c.pass(cite(rules, "the rules mention port 4791"));
  c.warn(cite(rules, "an input chain drops or rejects, and no rule mentions port 4791"),
         "RoCE v2 packets for a device in software (bee0, rdma_rxe) may be dropped",
         "nft insert rule inet filter input udp dport 4791 accept (from the cluster's addresses)");
}

void port_holder(Case& c) {
  if (!rdma_devices(c).empty()) return c.not_applicable("there are RDMA devices; bee0 steps aside");
  const auto sockets = c.file("/proc/net/udp");
  if (!sockets.found()) return c.unreadable(sockets);
  // local_address is hexadecimal ADDRESS:PORT; 4791 is 12B7.
  for (const auto& line : lines_of(sockets.value)) {
    const auto words = split(line, " ");
    if (words.size() > 1 && words[1].size() == 13 && words[1].substr(9) == "12B7" &&
        words[1].substr(0, 8) == "00000000")
      return c.warn(cite(sockets, line),
                    "a socket holds UDP port 4791 on every address: bee0 cannot bind its own",
                    "`ss -ulnp sport = :4791` names the program; end it");
  }
  c.pass(cite(sockets, "no socket on port 4791 of every address"));
}

constexpr auto rp_filter_doc =
    "https://git.zx2c4.com/linux-dev/commit/?id=bf869c30628cc02295fb919f0d0074f296d5f129";
constexpr std::array rows = {
    Check{"path.arp_ignore", "Interfaces in one subnet do not answer ARP for each other", arp_ignore,
          "hangs or 'connection timed out' between some pairs of cards", "net.ipv4.conf.all.arp_ignore=1",
          "NVIDIA/nccl#1269; ROCm/rccl#1303"},
    Check{"path.arp_announce", "Interfaces in one subnet ask by ARP with their own address", arp_announce,
          "hangs or 'connection timed out' between some pairs of cards", "net.ipv4.conf.all.arp_announce=2",
          "NVIDIA/nccl#1269; ROCm/rccl#1303"},
    Check{"path.policy_routes", "Interfaces in one subnet have a routing rule each", policy_routes,
          "cross-rail connections fail or take one card only", "ip rule add from ADDRESS lookup TABLE",
          "NVIDIA/nccl#1348; openucx/ucx#5598"},
    Check{"path.rp_filter", "Strict reverse path filtering is off where interfaces share a subnet",
          reverse_path, "TCP bootstrap hangs on some interfaces", "net.ipv4.conf.all.rp_filter=2",
          rp_filter_doc},
    Check{"path.public", "RoCE does not face a public address", facing_public,
          "none; it is a matter of security", "close UDP 4791 at the edge",
          "https://docs.nvidia.com/networking/display/WINOFv55053000/RoCE+v2+UDP+Port"},
    Check{"path.duplicate_address", "No address is on two interfaces", duplicate_address,
          "connections that work now and then", "remove one of them", "NVIDIA/nccl#1269"},
    Check{"path.neighbours", "Neighbours on RoCE interfaces answered", neighbours,
          "ibv_modify_qp failed with 110 (Connection timed out)", "VLAN, mask, cable",
          "NVIDIA/nccl#769; NVIDIA/nccl#1348"},
    Check{"path.routes", "Every RoCE address has a route through its interface", routes,
          "ibv_modify_qp failed with 101 (Network is unreachable)", "ip route add", "NVIDIA/nccl#1348"},
    Check{"path.firewall", "The firewall lets UDP 4791 in, where RoCE is software", firewall,
          "status 12 (retry exceeded) although ping and TCP work", "accept udp dport 4791",
          "https://docs.nvidia.com/networking/display/WINOFv55053000/RoCE+v2+UDP+Port; "
          "https://docs.nvidia.com/networking/display/bluefielddpuosv452/system+configuration+and+services"},
    Check{"path.port_4791", "Nothing else holds UDP 4791 where bee0 is used", port_holder,
          "bee0 says that the port is in use", "end the program",
          "https://docs.nvidia.com/networking/display/WINOFv55053000/RoCE+v2+UDP+Port"},
};

}  // namespace

std::span<const Check> path_checks() { return rows; }

}  // namespace beeline::doctor
