// GIDs: of version 2, not zero, routable, alike, and of an interface that is here.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "doctor/host/checks/groups.h"
#include "doctor/host/devices.h"
#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

std::string show(const Port& port, const GidEntry& gid) {
  return fmt::format("{}/gids/{} = {} ({}{}{})", port.path, gid.index, gid.text,
                     gid.type_known ? (gid.v2 ? "RoCE v2" : "RoCE v1") : "type unknown",
                     gid.netdev.empty() ? "" : ", ", gid.netdev);
}

std::string give_address(const Port& port) {
  return port.netdev.empty() ? "give the port's interface an IP address"
                             : "ip addr add ADDRESS/PREFIX dev " + port.netdev;
}

bool usable(const GidEntry& gid) { return gid.v2 && !gid.gid.is_link_local(); }

void gid_present(Case& c) {
  for (const auto& port : active_roce_ports(c)) {
    const auto used = gids(c, port);
    if (!used.empty())
      c.pass(fmt::format("{}/gids: {} that are not zero", port.path, used.size()));
    else
      c.fail(
          port.path + "/gids: every one is zero",
          port.device +
              " has no GID here: its interface is down, has no address, or is in another network namespace",
          give_address(port));
  }
}

void gid_v2(Case& c) {
  for (const auto& port : active_roce_ports(c)) {
    const auto used = gids(c, port);
    const auto found = std::find_if(used.begin(), used.end(), [](const GidEntry& gid) { return gid.v2; });
    if (used.empty())
      c.not_applicable(port.device + " has no GID at all (see roce.gid_present)");
    else if (found != used.end())
      c.pass(show(port, *found));
    else
      c.fail(show(port, used.front()), port.device + " has GIDs of RoCE v1 only, which no router forwards",
             "update driver and firmware; mlx5: `mlxconfig -d " + port.device + " query | grep ROCE`");
  }
}

void gid_routable(Case& c) {
  for (const auto& port : active_roce_ports(c)) {
    const auto used = gids(c, port);
    const auto found = std::find_if(used.begin(), used.end(), usable);
    if (std::none_of(used.begin(), used.end(), [](const GidEntry& gid) { return gid.v2; }))
      c.not_applicable(port.device + " has no RoCE v2 GID (see roce.gid_v2)");
    else if (found != used.end())
      c.pass(show(port, *found));
    else
      c.fail(
          show(port, used.back()),
          port.device +
              " has only link-local RoCE v2 GIDs: they do not leave the Ethernet segment, and NCCL's choice "
              "of one times out in ibv_modify_qp",
          give_address(port));
  }
}

void gid_type_readable(Case& c) {
  for (const auto& port : active_roce_ports(c)) {
    const auto used = gids(c, port);
    const auto unknown =
        std::find_if(used.begin(), used.end(), [](const GidEntry& gid) { return !gid.type_known; });
    if (used.empty())
      c.not_applicable(port.device + " has no GID at all (see roce.gid_present)");
    else if (unknown == used.end())
      c.pass(fmt::format("{}/gid_attrs/types: readable for all {} GIDs", port.path, used.size()));
    else
      c.warn(fmt::format("{}/gid_attrs/types/{} is not readable", port.path, unknown->index),
             fmt::format("programs cannot tell which version GID {} of {} is; some abort on it",
                         unknown->index, port.device),
             "mount the host's /sys in the container; or name a readable index (NCCL_IB_GID_INDEX)");
  }
}

void gid_index(Case& c) {
  std::map<int, std::string> first;
  std::string evidence;
  for (const auto& port : active_roce_ports(c)) {
    const auto used = gids(c, port);
    auto found = std::find_if(used.begin(), used.end(),
                              [](const GidEntry& gid) { return usable(gid) && gid.gid.is_v4(); });
    if (found == used.end()) found = std::find_if(used.begin(), used.end(), usable);
    if (found == used.end()) continue;
    first[found->index] += port.device + " ";
    evidence += (evidence.empty() ? "" : "; ") + show(port, *found);
    c.compare(port.device + " RoCE v2 GID index", std::to_string(found->index));
    c.compare(port.device + " RoCE v2 GID family", found->gid.is_v4() ? "IPv4" : "IPv6");
  }
  if (first.empty()) return c.not_applicable("no RoCE port with a routable RoCE v2 GID");
  if (first.size() == 1) return c.pass(evidence);
  const auto cause = "the routable RoCE v2 GID has a different index on different devices";
  if (const auto fixed = variable(c, "NCCL_IB_GID_INDEX"); fixed && *fixed != "-1")
    return c.fail(evidence + "; environment: NCCL_IB_GID_INDEX=" + *fixed,
                  std::string(cause) + ", and NCCL_IB_GID_INDEX fixes one for all",
                  "unset NCCL_IB_GID_INDEX (NCCL 2.21 and later choose by themselves)");
  c.warn(evidence, std::string(cause) + ": no fixed index (NCCL_IB_GID_INDEX, ib_write_bw -x) fits all",
         "let the library choose; remove addresses that differ");
}

void gid_family(Case& c) {
  std::map<bool, std::string> families;
  for (const auto& port : active_roce_ports(c)) {
    const auto used = gids(c, port);
    const bool v4 = std::any_of(used.begin(), used.end(),
                                [](const GidEntry& gid) { return usable(gid) && gid.gid.is_v4(); });
    const bool v6 = std::any_of(used.begin(), used.end(),
                                [](const GidEntry& gid) { return usable(gid) && !gid.gid.is_v4(); });
    if (v4 || v6) families[v4] += port.device + " ";
  }
  if (families.empty()) return c.not_applicable("no RoCE port with a routable RoCE v2 GID");
  const auto evidence = fmt::format("routable RoCE v2 GIDs from IPv4: {}; from IPv6 only: {}",
                                    families[true].empty() ? "none" : trim(families[true]),
                                    families[false].empty() ? "none" : trim(families[false]));
  if (families[true].empty() || families[false].empty()) return c.pass(evidence);
  c.warn(evidence,
         "devices of this host have GIDs of different address families: a library that keeps to one family "
         "skips the others",
         "give every RoCE interface an address of the same family");
}

void connection_manager(Case& c) {
  const auto cards = active_roce_cards(c);
  bool any = false;
  for (const auto& port : cards) {
    const auto mode = c.file(
        fmt::format("/sys/kernel/config/rdma_cm/{}/ports/{}/default_roce_mode", port.device, port.number));
    if (mode.unreadable()) {
      c.unreadable(mode);
      any = true;
    }
    if (!mode.found()) continue;
    any = true;
    c.compare(port.device + " default_roce_mode", std::string(trim(mode.value)));
    if (contains(mode.value, "v2"))
      c.pass(cite(mode));
    else
      c.fail(cite(mode), "connections made through rdma_cm from " + port.device + " use RoCE v1",
             fmt::format("cma_roce_mode -d {} -p {} -m 2", port.device, port.number));
  }
  if (!any && !cards.empty()) c.not_applicable("nobody set a default in /sys/kernel/config/rdma_cm");
}

constexpr auto configfs = "https://kernel.org/doc/Documentation/ABI/testing/configfs-rdma_cm";
constexpr std::array rows = {
    Check{"roce.gid_present", "Every active RoCE port has a GID that is not zero", gid_present,
          "the handshake passes, no byte arrives; ibv_modify_qp fails with 22 or 101",
          "give the interface an address", "projectcalico/calico#8482; lium 1202"},
    Check{"roce.gid_v2", "Every active RoCE port has a GID of RoCE v2", gid_v2,
          "status 12 right after connecting across subnets", "update driver and firmware",
          "NVIDIA/nccl#426; NVIDIA/nccl#902; linux-rdma/perftest#44"},
    Check{"roce.gid_routable", "Every active RoCE port has a RoCE v2 GID that is not link-local",
          gid_routable, "ibv_modify_qp failed with 110 (Connection timed out), remote GID fe80::",
          "give the interface an address", "NVIDIA/nccl#769"},
    Check{"roce.gid_types", "The type of every GID can be read", gid_type_readable,
          "a crash or abort while NCCL starts", "mount /sys; choose the index",
          "NVIDIA/nccl#1573; uccl-project/uccl#301"},
    Check{"roce.gid_index", "The routable RoCE v2 GID has one index on all devices", gid_index,
          "works between some devices, status 12 between others", "unset NCCL_IB_GID_INDEX",
          "NVIDIA/nccl#1538; ofiwg/libfabric#12673"},
    Check{"roce.gid_family", "All devices have GIDs of one address family", gid_family,
          "completion status 12; index 0 is chosen by mistake", "addresses of one family",
          "uccl-project/uccl#799"},
    Check{"roce.cm_mode", "rdma_cm connects by RoCE v2", connection_manager,
          "rdma_cm connections do not leave the subnet", "cma_roce_mode -m 2", configfs},
};

}  // namespace

std::span<const Check> roce_checks() { return rows; }

}  // namespace beeline::doctor
