// RDMA devices, their ports and GIDs, and the PCI path to them, as the evidence shows them.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/address.h"
#include "doctor/host/case.h"

namespace beeline::doctor {

struct Port {
  std::string device;  // mlx5_0
  int number = 1;
  std::string path;        // /sys/class/infiniband/mlx5_0/ports/1
  std::string driver;      // mlx5_core, bnxt_en, ice, efa; empty for a software device
  std::string netdev;      // the Ethernet interface; empty if it has none
  std::string link_layer;  // Ethernet, InfiniBand, Unspecified
  std::string state;       // ACTIVE, DOWN, INIT, ...
  double rate_gbps = 0;

  bool active() const { return state == "ACTIVE"; }
  bool hardware() const { return !driver.empty(); }
  // RoCE on a card: EFA has its own protocol, a software device no hardware to configure.
  bool roce() const { return link_layer == "Ethernet"; }
  bool roce_card() const { return roce() && hardware() && driver != "efa"; }
};

struct GidEntry {
  int index = 0;
  Gid gid;
  std::string text;
  bool type_known = false;
  bool v2 = false;
  std::string netdev;
};

std::vector<std::string> rdma_devices(Case& c);
std::vector<Port> ports(Case& c);
// Those that are ACTIVE and match; says "not applicable" when there is none.
std::vector<Port> active_roce_ports(Case& c);
std::vector<Port> active_roce_cards(Case& c);
// The same, one port per network interface.
std::vector<Port> roce_card_interfaces(Case& c);
// Without the empty slots.
std::vector<GidEntry> gids(Case& c, const Port& port);

struct Address {
  std::string interface, ip;
  int prefix = 0;
};
std::vector<Address> addresses(Case& c);
std::optional<std::uint32_t> parse_ipv4(std::string_view text);
std::uint32_t ipv4_mask(int prefix);
// Routed on the Internet: neither private nor reserved.
bool public_address(std::uint32_t address);

// /sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0 and the bridges above it, from the root
// port down; empty for a device that is not on PCI.
std::vector<std::string> pci_chain(Case& c, const std::string& device_link);
// PCI devices of the RDMA devices: link of the device, its chain.
struct Card {
  std::string device;
  std::vector<std::string> chain;
  double rate_gbps = 0;  // of its active ports together
};
std::vector<Card> pci_cards(Case& c);

// GPUs on the PCI bus (NVIDIA and AMD accelerators), by their paths.
struct Gpu {
  std::string path;
  bool nvidia = false;
};
std::vector<Gpu> gpus(Case& c);
bool in_container(Case& c);
// A variable of the recorded environment.
std::optional<std::string> variable(Case& c, std::string_view name);

}  // namespace beeline::doctor
