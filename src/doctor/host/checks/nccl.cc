// Which devices, interfaces and GIDs the environment chooses.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "doctor/host/checks/groups.h"
#include "doctor/host/checks/nccl_env.h"
#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

std::string unset(const char* name) {
  return fmt::format("unset {} (and remove it from /etc/nccl.conf)", name);
}

void disabled(Case& c) {
  const auto set = nccl_variable(c, "NCCL_IB_DISABLE");
  if (!set) return c.pass("environment: NCCL_IB_DISABLE is not set");
  if (number(set->value).value_or(0) == 0) return c.pass(set->evidence);
  if (ports(c).empty()) return c.not_applicable(set->evidence + "; there is no RDMA device to disable");
  c.fail(set->evidence, "NCCL will use sockets although this host has RDMA devices",
         unset("NCCL_IB_DISABLE"));
}

void adapters(Case& c) {
  const auto set = nccl_variable(c, "NCCL_IB_HCA");
  if (!set) return c.pass("environment: NCCL_IB_HCA is not set");
  const auto all = ports(c);
  if (all.empty())
    return c.fail(set->evidence + "; /sys/class/infiniband/ holds nothing",
                  "it names RDMA devices, and this host has none", unset("NCCL_IB_HCA"));
  const auto list = parse_names(set->value);
  std::string lost;
  for (const auto& entry : list.entries) {
    NameList one{false, list.exact, {entry}};
    if (!list.exclude && std::none_of(all.begin(), all.end(),
                                      [&](const Port& port) { return one.names(port.device, port.number); }))
      lost += (lost.empty() ? "" : ", ") + entry.name;
  }
  std::string here;
  for (const auto& port : all) here += (here.empty() ? "" : " ") + port.device;
  const auto evidence = set->evidence + "; /sys/class/infiniband/ holds " + here;
  const auto fix = "name devices that `beeline devices` or `ibv_devinfo` lists, with ports that are ACTIVE";
  if (selected_ports(c).empty())
    return c.fail(evidence, "no ACTIVE port is left: NCCL says 'NET/IB : No device found' and uses sockets",
                  fix);
  if (!lost.empty()) return c.warn(evidence, "no device is called " + lost + ": fewer rails than meant", fix);
  c.pass(evidence);
}

// The interfaces that have an address, without loopback.
std::vector<std::string> interfaces(Case& c) {
  std::vector<std::string> names;
  for (const auto& address : addresses(c))
    if (std::find(names.begin(), names.end(), address.interface) == names.end())
      names.push_back(address.interface);
  return names;
}

void socket_interface(Case& c, const char* variable_name, const NameList& list, const std::string& evidence) {
  const auto all = interfaces(c);
  if (all.empty()) return c.unreadable(c.fact("addresses"));
  std::vector<std::string> chosen;
  for (const auto& name : all)
    if (list.selects(name, -1)) chosen.push_back(name);
  const auto shown = evidence + "; interfaces with an address: " + join(all, " ");
  if (chosen.empty())
    return c.fail(shown,
                  "no interface with an address matches: the bootstrap fails ('no socket interface found')",
                  fmt::format("export {}=INTERFACE, one that reaches the other hosts", variable_name));
  const bool inward = std::all_of(chosen.begin(), chosen.end(), [](const std::string& name) {
    return name == "lo" || starts_with(name, "docker") || starts_with(name, "virbr") ||
           starts_with(name, "cni");
  });
  if (inward)
    return c.warn(shown,
                  join(chosen, " ") + " does not leave this host: ranks on other hosts cannot connect to it",
                  fmt::format("export {}=INTERFACE, one that reaches the other hosts", variable_name));
  c.pass(shown);
}

void nccl_interface(Case& c) {
  const auto set = nccl_variable(c, "NCCL_SOCKET_IFNAME");
  if (!set) return c.pass("environment: NCCL_SOCKET_IFNAME is not set");
  socket_interface(c, "NCCL_SOCKET_IFNAME", parse_names(set->value), set->evidence);
}

void gloo_interface(Case& c) {
  const auto set = variable(c, "GLOO_SOCKET_IFNAME");
  if (!set) return c.pass("environment: GLOO_SOCKET_IFNAME is not set");
  auto list = parse_names(*set);
  list.exact = true;  // Gloo knows no prefixes
  socket_interface(c, "GLOO_SOCKET_IFNAME", list, "environment: GLOO_SOCKET_IFNAME=" + *set);
}

void gid_index(Case& c) {
  const auto set = nccl_variable(c, "NCCL_IB_GID_INDEX");
  if (!set) return c.pass("environment: NCCL_IB_GID_INDEX is not set");
  const auto index = number(set->value);
  if (!index) return c.fail(set->evidence, "it is not a number", unset("NCCL_IB_GID_INDEX"));
  if (*index < 0) return c.pass(set->evidence + " (NCCL chooses)");
  bool any = false;
  for (const auto& port : selected_ports(c)) {
    if (!port.roce()) continue;
    any = true;
    const auto used = gids(c, port);
    const auto found =
        std::find_if(used.begin(), used.end(), [&](const GidEntry& gid) { return gid.index == *index; });
    const auto where = fmt::format("{}; {}/gids/{}", set->evidence, port.path, *index);
    if (found == used.end())
      c.fail(where + " is empty or zero", fmt::format("{} has no GID at index {}", port.device, *index),
             unset("NCCL_IB_GID_INDEX"));
    else if (found->type_known && !found->v2)
      c.fail(where + " is RoCE v1",
             "the chosen GID is of RoCE v1, which no router forwards and a v2 peer does not understand",
             unset("NCCL_IB_GID_INDEX"));
    else if (found->gid.is_link_local())
      c.fail(where + " = " + found->text,
             "the chosen GID is link-local: other hosts' connections to it time out",
             unset("NCCL_IB_GID_INDEX"));
    else
      c.pass(where + " = " + found->text);
  }
  if (!any) c.not_applicable(set->evidence + "; no active RoCE port that it applies to");
}

void network(Case& c) {
  const auto set = nccl_variable(c, "NCCL_NET");
  if (!set) return c.pass("environment: NCCL_NET is not set");
  const auto name = lower(set->value);
  const bool devices = !ports(c).empty();
  if (name == "socket" && devices)
    return c.fail(set->evidence, "NCCL will use sockets although this host has RDMA devices",
                  unset("NCCL_NET"));
  if (name == "ib" && !devices)
    return c.fail(set->evidence + "; /sys/class/infiniband/ holds nothing",
                  "NCCL is told to use RDMA, and this host has no device", unset("NCCL_NET"));
  c.pass(set->evidence);
}

void ucx_devices(Case& c) {
  const auto set = variable(c, "UCX_NET_DEVICES");
  if (!set) return c.pass("environment: UCX_NET_DEVICES is not set");
  if (*set == "all") return c.pass("environment: UCX_NET_DEVICES=all");
  const auto list = parse_names(*set);
  std::vector<std::string> known = interfaces(c);
  for (const auto& port : ports(c)) known.push_back(port.device);
  std::string lost;
  for (const auto& entry : list.entries)
    if (std::find(known.begin(), known.end(), entry.name) == known.end())
      lost += (lost.empty() ? "" : ", ") + entry.name;
  const auto evidence =
      fmt::format("environment: UCX_NET_DEVICES={}; devices and interfaces here: {}", *set, join(known, " "));
  if (lost.empty() || list.exclude) return c.pass(evidence);
  c.fail(evidence, "nothing here is called " + lost, "name devices as DEVICE:PORT, for example mlx5_0:1");
}

constexpr auto env = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html";
constexpr std::array rows = {
    Check{"nccl.ib_disable", "NCCL is not told to leave RDMA alone", disabled,
          "a tenth of the speed; NCCL's log says NET/Socket", "unset NCCL_IB_DISABLE", env},
    Check{"nccl.ib_hca", "NCCL_IB_HCA names devices that are here and ACTIVE", adapters,
          "'NET/IB : No device found'; fewer rails", "correct the names", env},
    Check{"nccl.socket_ifname", "NCCL_SOCKET_IFNAME names an interface that leaves the host", nccl_interface,
          "bootstrap fails, hangs, or works on one host only", "correct the name",
          "NVIDIA/nccl#913; https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"},
    Check{"nccl.gloo_ifname", "GLOO_SOCKET_IFNAME names an interface that leaves the host", gloo_interface,
          "Gloo takes half a minute to connect, or hangs", "correct the name", "pytorch/gloo#335"},
    Check{"nccl.gid_index", "NCCL_IB_GID_INDEX is a routable RoCE v2 GID on every device", gid_index,
          "status 12 right after connecting; ibv_modify_qp failed", "unset NCCL_IB_GID_INDEX",
          "NVIDIA/nccl#1538; NVIDIA/nccl#426"},
    Check{"nccl.net", "NCCL_NET names a network that is here", network,
          "a tenth of the speed, or 'Failed to initialize any NET plugin'", "unset NCCL_NET", env},
    Check{"nccl.ucx_devices", "UCX_NET_DEVICES names devices that are here", ucx_devices,
          "UCX: 'network device … is not available'; it falls back to TCP", "DEVICE:PORT",
          "openucx/ucx#2434"},
};

}  // namespace

std::span<const Check> nccl_checks() { return rows; }

}  // namespace beeline::doctor
