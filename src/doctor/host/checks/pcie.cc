// The PCI Express path of each RDMA card, from the root port down.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "doctor/host/checks/groups.h"
#include "doctor/host/checks/pci_config.h"
#include "doctor/host/devices.h"
#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

std::string short_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Every link of the path: (upper end, lower end). The root port has no upper end of its own.
template <class Look>
void for_each_link(Case& c, Look look) {
  std::vector<std::string> seen;
  for (const auto& card : pci_cards(c)) {
    for (std::size_t i = 0; i < card.chain.size(); ++i) {
      const auto& below = card.chain[i];
      if (std::find(seen.begin(), seen.end(), below) != seen.end()) continue;
      seen.push_back(below);
      const bool has_link = i > 0;  // between chain[i-1] and chain[i]
      if (has_link) look(card, card.chain[i - 1], below);
    }
    if (card.chain.size() == 1) look(card, std::string(), card.chain.front());
  }
}

// current and maximum of "link_speed" or "link_width" at both ends
void link_value(Case& c, const char* what, const char* unit) {
  bool any = false;
  for_each_link(c, [&](const Card& card, const std::string& above, const std::string& below) {
    const auto current = c.file(fmt::format("{}/current_{}", below, what));
    const auto most = c.file(fmt::format("{}/max_{}", below, what));
    const auto now = decimal(current.value), own = decimal(most.value);
    // An internal link of a switch, or a virtual machine's: no numbers, nothing to say.
    if (!now || !own || *now <= 0 || *own <= 0 || *own > 200) return;
    any = true;
    const auto other =
        above.empty() ? own : decimal(c.text(fmt::format("{}/max_{}", above, what)).value_or(""));
    const double possible = std::min(*own, other && *other > 0 && *other <= 200 ? *other : *own);
    c.compare(fmt::format("{} {} {}", card.device, below == card.chain.back() ? "card" : "bridge", what),
              std::string(trim(current.value)));
    if (*now >= possible) return c.pass(cite(current));
    c.fail(fmt::format("{}; both ends can {}{}", cite(current), possible, unit),
           fmt::format("the link above {} on the way to {} trained at {}{} instead of {}{}",
                       short_name(below), card.device, *now, unit, possible, unit),
           fmt::format("reseat the card or its riser, update BIOS and firmware, then reboot; look again with "
                       "`lspci -s {} -vv | "
                       "grep Lnk`",
                       short_name(below)));
  });
  if (!any && !pci_cards(c).empty())
    c.not_applicable("no PCI Express link is visible (as in a virtual machine)");
}

void link_speed(Case& c) { link_value(c, "link_speed", " GT/s"); }
void link_width(Case& c) { link_value(c, "link_width", " lanes"); }

void slot_bandwidth(Case& c) {
  bool any = false;
  for (const auto& card : pci_cards(c)) {
    const auto speed = c.file(card.chain.back() + "/current_link_speed");
    const auto width = c.file(card.chain.back() + "/current_link_width");
    const auto gigatransfers = decimal(speed.value), lanes = decimal(width.value);
    if (!gigatransfers || !lanes || *gigatransfers <= 0 || *lanes <= 0 || *lanes > 32 || card.rate_gbps <= 0)
      continue;
    any = true;
    const double encoding = *gigatransfers >= 8 ? 128.0 / 130.0 : 0.8;
    const double possible = *gigatransfers * *lanes * encoding;
    const auto evidence = fmt::format("{}, {}: {:.0f} Gb/s before packet overhead; ports {:.0f} Gb/s",
                                      cite(speed), cite(width), possible, card.rate_gbps);
    if (possible >= card.rate_gbps) {
      c.pass(evidence);
      continue;
    }
    c.warn(evidence, fmt::format("the slot of {} carries less than its ports", card.device),
           "move the card to a slot with more lanes or a newer generation (the board's manual lists them)");
  }
  if (!any && !pci_cards(c).empty())
    c.not_applicable("no RDMA card with an active port on a visible PCI Express link");
}

void max_read_request(Case& c) {
  for (const auto& card : pci_cards(c)) {
    const auto config = c.file(card.chain.back() + "/config");
    const auto control = device_control(config);
    if (!control) {
      c.unreadable(config.found() ? refused_config(config) : config);
      continue;
    }
    const int bytes = 128 << (*control >> 12U & 7U);
    c.compare(card.device + " MaxReadReq", std::to_string(bytes));
    const auto evidence = fmt::format("{}: MaxReadReq {} bytes", name_of(config.question), bytes);
    if (bytes >= 512) {
      c.pass(evidence);
      continue;
    }
    c.warn(evidence,
           fmt::format("{} asks memory for at most {} bytes at once; 512 is the specification's default",
                       card.device, bytes),
           fmt::format("setpci -s {} CAP_EXP+8.w=5000:7000 (4096 bytes)", short_name(card.chain.back())));
  }
}

void max_payload(Case& c) {
  for (const auto& card : pci_cards(c)) {
    if (card.chain.size() < 2) {
      c.not_applicable("no bridge above the card is visible (as in a virtual machine)");
      continue;
    }
    const auto config = c.file(card.chain.back() + "/config");
    const auto bridge = c.file(card.chain[card.chain.size() - 2] + "/config");
    const auto own = device_control(config), above = device_control(bridge);
    if (!own || !above) {
      const auto& missing = own ? bridge : config;
      c.unreadable(missing.found() ? refused_config(missing) : missing);
      continue;
    }
    const int card_bytes = 128 << (*own >> 5U & 7U), bridge_bytes = 128 << (*above >> 5U & 7U);
    const auto evidence = fmt::format("{}: MaxPayload {} bytes; {}: {} bytes", name_of(config.question),
                                      card_bytes, name_of(bridge.question), bridge_bytes);
    if (card_bytes <= bridge_bytes) {
      c.pass(evidence);
      continue;
    }
    c.fail(evidence, fmt::format("{} may send larger packets than the bridge above it takes", card.device),
           "boot with pci=pcie_bus_safe, or update the BIOS");
  }
}

void access_control(Case& c) {
  const auto cards = pci_cards(c);
  if (cards.empty()) return;
  if (gpus(c).empty()) return c.not_applicable("no GPU: nothing goes from device to device");
  for (const auto& card : cards) {
    if (card.chain.size() < 2) {
      c.not_applicable("no bridge above the card is visible (as in a virtual machine)");
      continue;
    }
    for (std::size_t i = 0; i + 1 < card.chain.size(); ++i) {
      const auto config = c.file(card.chain[i] + "/config");
      if (config.found() && config.value.size() < 4096) {
        c.unreadable(refused_config(config));
        continue;
      }
      if (!config.found()) {
        c.unreadable(config);
        continue;
      }
      const auto control = acs_control(config);
      const auto bridge = short_name(card.chain[i]);
      constexpr unsigned redirects = 0x0C;  // request and completion redirect: traffic goes up to the root
      if (!control) {
        c.pass(name_of(config.question) + ": the bridge has no ACS");
      } else if ((*control & redirects) == 0) {
        c.pass(fmt::format("{}: ACSCtl {:#06x}", name_of(config.question), *control));
      } else {
        c.warn(fmt::format("{}: ACSCtl {:#06x}", name_of(config.question), *control),
               fmt::format("bridge {} above {} sends traffic between devices up through the root complex",
                           bridge, card.device),
               fmt::format("setpci -s {} ECAP_ACS+6.w=0 (until reboot), or disable ACS in the BIOS; not "
                           "where a hypervisor needs it",
                           bridge));
      }
    }
  }
}

void iommu(Case& c) {
  for (const auto& card : pci_cards(c)) {
    const auto type = c.file(card.chain.back() + "/iommu_group/type");
    if (type.unreadable()) {
      c.unreadable(type);
    } else if (!type.found()) {
      c.pass("no IOMMU group for " + short_name(card.chain.back()));
    } else if (trim(type.value) == "identity") {
      c.pass(cite(type));
    } else {
      c.warn(cite(type),
             fmt::format(
                 "the IOMMU translates every address that {} uses; direct access between devices may fail",
                 card.device),
             "boot with iommu=pt (and intel_iommu=on or amd_iommu=on), or switch the IOMMU off in the BIOS");
    }
  }
}

// TOTAL_ERR_… at the end of an aer_dev_* file
std::optional<std::int64_t> total(const Reading& reading) {
  for (const auto& line : lines_of(reading.value))
    if (starts_with(line, "TOTAL_ERR_")) return number(std::string_view(line).substr(line.rfind(' ') + 1));
  return std::nullopt;
}

void error_reports(Case& c) {
  bool any = false;
  for (const auto& card : pci_cards(c))
    for (const auto& function : card.chain)
      for (const char* kind : {"fatal", "nonfatal", "correctable"}) {
        const auto reading = c.file(fmt::format("{}/aer_dev_{}", function, kind));
        const auto count = total(reading);
        if (!count) continue;
        any = true;
        const auto evidence = fmt::format("{}: total {}", name_of(reading.question), *count);
        const bool correctable = std::string_view(kind) == "correctable";
        const auto cause = fmt::format("{} reported {} {} PCI Express errors since boot",
                                       short_name(function), *count, kind);
        const std::string fix =
            "reseat or replace the card, riser or cable on that link; `dmesg | grep -i aer`";
        if (!correctable && *count > 0)
          c.fail(evidence, cause, fix);
        else if (correctable && *count > 1000)
          c.warn(evidence, cause, fix);
        else
          c.pass(evidence);
      }
  if (!any && !pci_cards(c).empty()) c.not_applicable("the kernel keeps no AER counters for these devices");
}

void numa_node(Case& c) {
  const auto nodes = c.names_in("/sys/devices/system/node");
  std::size_t count = 0;
  for (const auto& node : nodes)
    count += starts_with(node, "node") && number(node.substr(4)).has_value() ? 1 : 0;
  if (count < 2) return c.not_applicable("one NUMA node");
  for (const auto& card : pci_cards(c)) {
    const auto node = c.file(card.chain.back() + "/numa_node");
    c.compare(card.device + " NUMA node", std::string(trim(node.value)));
    if (!node.found())
      c.unreadable(node);
    else if (number(node.value).value_or(-1) >= 0)
      c.pass(cite(node));
    else
      c.warn(cite(node),
             fmt::format("the firmware does not say which of {} NUMA nodes {} is at", count, card.device),
             "update the BIOS, or set the node: `echo N > " + card.chain.back() + "/numa_node`");
  }
}

constexpr auto doc_2496 = "https://community.mellanox.com/docs/DOC-2496";
constexpr auto aer_abi = "https://kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci-devices-aer";
constexpr auto pcie_bus = "https://www.kernelconfig.io/config_pcie_bus_performance";
constexpr std::array rows = {
    Check{"pcie.link_speed", "Every PCI Express link up to the root runs at the speed that both ends can",
          link_speed, "half the bandwidth or less, on one host or one card",
          "reseat, update firmware and BIOS, reboot",
          "scitix/sichek#122; https://community.mellanox.com/docs/DOC-2496"},
    Check{"pcie.link_width", "Every PCI Express link up to the root uses the lanes that both ends have",
          link_width, "half the bandwidth or less, on one host or one card", "reseat the card or riser",
          "mej/nhc#90; scitix/sichek#122; https://community.mellanox.com/docs/DOC-2496"},
    Check{"pcie.slot_bandwidth", "The slot carries what the ports do", slot_bandwidth,
          "bandwidth stops at about 12, 25 or 50 GB/s however large the messages", "use a wider slot",
          doc_2496},
    Check{"pcie.max_read_request", "MaxReadReq is not below 512 bytes", max_read_request,
          "sending is slower than receiving", "setpci CAP_EXP+8.w", doc_2496},
    Check{"pcie.max_payload", "The card's MaxPayload is not above its bridge's", max_payload,
          "malformed TLP errors, device resets", "pci=pcie_bus_safe", pcie_bus},
    Check{"pcie.acs", "ACS does not redirect traffic between GPU and card", access_control,
          "GPUDirect at half speed or hanging; completion status 4 or 10", "disable ACS on the bridges",
          "NVIDIA/nccl#928; openucx/ucx#3564; NVIDIA/nccl-tests#112"},
    Check{"pcie.iommu", "The IOMMU does not translate the card's addresses", iommu,
          "all-reduce hangs; GPUDirect is slow or fails", "iommu=pt", "NVIDIA/nccl#257"},
    Check{"pcie.aer", "No PCI Express errors were reported", error_reports,
          "random slow steps; cards that vanish", "reseat or replace hardware", aer_abi},
    Check{"pcie.numa_node", "The NUMA node of each card is known", numa_node,
          "ranks are bound to the far socket: lower bandwidth, higher latency", "update the BIOS",
          "NVIDIA/nccl#246; NVIDIA/nccl#439"},
};

}  // namespace

std::span<const Check> pcie_checks() { return rows; }

}  // namespace beeline::doctor
