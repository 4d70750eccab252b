// Links that flap, errors, drops, rings, pause, bonds.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "doctor/host/checks/groups.h"
#include "doctor/host/checks/kernel_log.h"
#include "doctor/host/devices.h"
#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

void flaps(Case& c) {
  for (const auto& port : roce_card_interfaces(c)) {
    const auto count = c.file("/sys/class/net/" + port.netdev + "/carrier_down_count");
    const auto value = number(count.value);
    if (!value) {
      c.unreadable(count);
      continue;
    }
    if (*value < 10) {
      c.pass(cite(count));
      continue;
    }
    c.warn(
        cite(count), fmt::format("{} lost its link {} times since it was created", port.netdev, *value),
        "`dmesg -T | grep 'Link down'` for the times; clean or replace cable and transceiver: `ethtool -m " +
            port.netdev + "`");
  }
}

void link_errors(Case& c) {
  const auto all = ports(c);
  bool any = false;
  for (const auto& port : all) {
    if (!port.hardware() || port.driver == "efa") continue;
    for (const char* counter : {"symbol_error", "link_error_recovery", "port_rcv_errors",
                                "local_link_integrity_errors", "excessive_buffer_overrun_errors"}) {
      const auto reading = c.file(fmt::format("{}/counters/{}", port.path, counter));
      const auto value = number(reading.value);
      if (!value) continue;
      any = true;
      if (*value == 0)
        c.pass(cite(reading));
      else
        c.warn(cite(reading),
               fmt::format("{} port {} counted {} {}", port.device, port.number, *value, counter),
               "watch whether it grows under load; clean or replace the cable or transceiver");
    }
  }
  if (!any) c.not_applicable(all.empty() ? "no RDMA device" : "no RDMA card with such counters");
}

// Calls look(port, statistics) for every interface whose statistics can be read.
template <class Look>
void for_each_statistics(Case& c, Look look) {
  for (const auto& port : roce_card_interfaces(c)) {
    const auto statistics = c.command("ethtool -S " + port.netdev);
    if (statistics.found())
      look(port, statistics);
    else if (statistics.unreadable())
      c.unreadable(statistics);
    else
      c.not_applicable("`ethtool -S` knows no statistics of " + port.netdev);
  }
}

// Those of `counters` that are not zero, as "name: value".
std::vector<std::string> not_zero(const Reading& statistics,
                                  std::initializer_list<std::string_view> counters) {
  std::vector<std::string> found;
  for (const auto& counter : counters)
    if (const auto value = number(field(statistics.value, counter).value_or("")); value && *value > 0)
      found.push_back(fmt::format("{}: {}", counter, *value));
  return found;
}

void physical_errors(Case& c) {
  for_each_statistics(c, [&](const Port& port, const Reading& statistics) {
    const auto hits =
        not_zero(statistics,
                 {"rx_crc_errors_phy", "rx_symbol_err_phy", "rx_in_range_len_errors_phy", "rx_fcs_err_frames",
                  "rx_crc_errors", "rx_crc_errors.nic", "rx_fec_uncorrectable_errors"});
    if (hits.empty()) return c.pass(name_of(statistics.question) + ": no CRC or symbol errors");
    c.warn(cite(statistics, join(hits, ", ")),
           port.netdev + " received damaged frames since its counters were cleared",
           "clean or replace the cable or transceiver: `ethtool -m " + port.netdev + "`");
  });
}

void discards(Case& c) {
  for_each_statistics(c, [&](const Port& port, const Reading& statistics) {
    const auto hits =
        not_zero(statistics,
                 {"rx_discards_phy", "tx_discards_phy", "rx_prio3_discards", "rx_prio3_buf_discard",
                  "rx_total_discard_pkts", "rx_total_buf_errors", "rx_dropped.nic", "rx_out_of_buffer_rdma"});
    if (hits.empty()) return c.pass(name_of(statistics.question) + ": nothing discarded");
    c.warn(cite(statistics, join(hits, ", ")),
           port.netdev +
               " dropped packets since its counters were cleared; RoCE answers a drop by going back and "
               "sending again",
           "make the traffic lossless (PFC on RoCE's priority) or enable ECN, here and on the switch; see "
           "roce.pfc, roce.ecn");
  });
}

void pause_storm(Case& c) {
  for_each_statistics(c, [&](const Port& port, const Reading& statistics) {
    const auto hits = not_zero(statistics, {"tx_pause_storm_error_events", "tx_pause_storm_warning_events"});
    if (hits.empty()) return c.pass(name_of(statistics.question) + ": no pause storm");
    c.warn(cite(statistics, join(hits, ", ")),
           port.netdev +
               " was stalled for so long that the card noticed; while it pauses its link, senders to it "
               "stand still",
           "look for a slow receiver on this host: PCI Express (pcie.*), a hung GPU or process");
  });
}

void rings(Case& c) {
  for (const auto& port : roce_card_interfaces(c)) {
    const auto reading = c.command("ethtool -g " + port.netdev);
    if (!reading.found()) {
      if (reading.unreadable())
        c.unreadable(reading);
      else
        c.not_applicable("`ethtool -g` knows no rings of " + port.netdev);
      continue;
    }
    const auto at = reading.value.find("Current hardware settings");
    if (at == std::string::npos) {
      c.not_applicable("`ethtool -g` shows no ring of " + port.netdev);
      continue;
    }
    const auto current = number(field(std::string_view(reading.value).substr(at), "RX").value_or(""));
    const auto most = number(field(std::string_view(reading.value).substr(0, at), "RX").value_or(""));
    if (!current || !most) {
      c.not_applicable("`ethtool -g` shows no receive ring of " + port.netdev);
      continue;
    }
    const auto evidence = cite(reading, fmt::format("RX {} of at most {}", *current, *most));
    if (*current >= 512 || *current >= *most) {
      c.pass(evidence);
      continue;
    }
    c.warn(evidence,
           fmt::format("the receive ring of {} holds only {} packets; this concerns TCP (bootstrap, data "
                       "loading), RoCE does not use it",
                       port.netdev, *current),
           fmt::format("ethtool -G {} rx {}", port.netdev, std::min<std::int64_t>(*most, 8192)));
  }
}

void bonds(Case& c) {
  bool any = false;
  for (const auto& port : roce_card_interfaces(c)) {
    const auto base = "/sys/class/net/" + port.netdev + "/bonding";
    const auto mode = c.file(base + "/mode");
    if (!mode.found()) continue;
    any = true;
    const std::string value(trim(mode.value));
    const auto name = value.substr(0, value.find(' '));
    if (name != "active-backup" && name != "balance-xor" && name != "802.3ad")
      c.fail(cite(mode),
             fmt::format("RoCE works over bonds of mode 1, 2 and 4 only; {} is {}", port.netdev, value),
             "set mode=802.3ad (and LACP on the switch), or active-backup");
    else
      c.pass(cite(mode));
    const auto policy = c.file(base + "/xmit_hash_policy");
    if (name != "active-backup" && policy.found()) {
      if (contains(policy.value, "3+4"))
        c.pass(cite(policy));
      else
        c.warn(
            cite(policy),
            port.netdev +
                " chooses a link without looking at UDP ports: all RoCE traffic to one host takes one link",
            "ip link set " + port.netdev + " type bond xmit_hash_policy layer3+4");
    }
    for (const auto& member : split(c.text(base + "/slaves").value_or(""), " ")) {
      const auto state = c.file("/sys/class/net/" + member + "/operstate");
      if (state.found() && trim(state.value) != "up")
        c.warn(cite(state),
               fmt::format("{} of bond {} is {}: less bandwidth, no spare link", member, port.netdev,
                           trim(state.value)),
               fmt::format("check cable and switch port of {0}; ip link set {0} up", member));
    }
  }
  if (!any) c.not_applicable("no RoCE interface is a bond");
}

void driver_health(Case& c) {
  const auto all = ports(c);
  if (std::none_of(all.begin(), all.end(), [](const Port& port) { return port.hardware(); }))
    return c.not_applicable(all.empty() ? "no RDMA device" : "no RDMA card");
  KernelLog log(c);
  if (!log.readable()) return;
  const auto hits =
      log.find({"health compromised", "assert_var[", "cmd_work_handler",
                "timeout. Will cause a leak of a command resource", "Cable error", "High Temperature",
                "firmware initialization failed", "Firmware not responding"});
  if (hits.empty()) return c.pass(log.nothing());
  c.fail(log.show(hits), "the card's driver reported trouble since boot; the last message is shown",
         "compare its time with the job's; reset or replace the card, update its firmware");
}

constexpr auto mlx5_counters =
    "https://code.territory.dev/repos/DaFxbRzcpd9fAwobsLd9/master/lqbrz6xivxr6feelptps/codebase/id:161807948 "
    "(Linux: mlx5 ethtool counters)";
constexpr std::array rows = {
    Check{"nic.flaps", "The links did not go down often", flaps,
          "one flap kills a NCCL job: status 12, 'port error' events",
          "clean or replace cable and transceiver",
          "NVIDIA/nccl#998; https://docs.nvidia.com/health-validation/reference/checks/infiniband.md"},
    Check{"nic.link_errors", "Ports counted no link errors", link_errors,
          "retransmissions, slow steps, then status 12", "replace the cable",
          "https://docs.kernel.org/admin-guide/abi-stable-files.html"},
    Check{"nic.physical_errors", "Interfaces received no damaged frames", physical_errors,
          "retransmissions, slow steps, then status 12", "replace the cable", mlx5_counters},
    Check{"nic.discards", "Interfaces dropped nothing", discards,
          "bandwidth collapses under load; status 12 after a while", "PFC or ECN",
          "NVIDIA/nccl#306; NVIDIA/nccl#378"},
    Check{"nic.pause_storm", "No card stalled its link", pause_storm,
          "many hosts slow down because of this one", "find the slow receiver",
          "https://www.mail-archive.com/netdev@vger.kernel.org/msg225245.html"},
    Check{"nic.rings", "Receive rings are not tiny", rings, "slow TCP: bootstrap, checkpoints, data loading",
          "ethtool -G IFACE rx N", mlx5_counters},
    Check{"nic.bond", "Bonds have a mode and a hash that RoCE can use", bonds,
          "only one link of the bond carries data", "802.3ad with layer3+4",
          "https://forums.developer.nvidia.com/t/bonding-teaming-over-multiple-adapters/205993; "
          "NVIDIA/nccl#1015"},
    Check{
        "nic.driver_health", "The cards' drivers reported no trouble", driver_health,
        "a rail fails in the middle of a job", "reset or replace the card",
        "https://docs.nvidia.com/health-validation/reference/checks/infiniband.md; facebookresearch/gcm#143"},
};

}  // namespace

std::span<const Check> nic_health_checks() { return rows; }

}  // namespace beeline::doctor
