// Which cards there are, and whether their ports are up and alike.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "doctor/host/checks/groups.h"
#include "doctor/host/devices.h"
#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

// Ethernet drivers whose cards have RDMA, and the module that brings it.
struct RdmaDriver {
  std::string_view ethernet, rdma, provider;
};
constexpr std::array drivers = {RdmaDriver{"mlx5_core", "mlx5_ib", "mlx5"},
                                RdmaDriver{"mlx4_core", "mlx4_ib", "mlx4"},
                                RdmaDriver{"bnxt_en", "bnxt_re", "bnxt_re"},
                                RdmaDriver{"ice", "irdma", "irdma"}, RdmaDriver{"efa", "efa", "efa"}};

const RdmaDriver* rdma_driver(std::string_view ethernet) {
  const auto found =
      std::find_if(drivers.begin(), drivers.end(), [&](const auto& row) { return row.ethernet == ethernet; });
  return found == drivers.end() ? nullptr : &*found;
}

// PCI functions that such a driver holds: function -> driver.
std::map<std::string, const RdmaDriver*> capable_functions(Case& c) {
  std::map<std::string, const RdmaDriver*> capable;
  for (const auto& function : c.names_in("/sys/bus/pci/devices")) {
    const auto driver = c.link("/sys/bus/pci/devices/" + function + "/driver");
    if (!driver.found()) continue;
    if (const auto* row = rdma_driver(driver.value.substr(driver.value.rfind('/') + 1)))
      capable[function] = row;
  }
  return capable;
}

void device_for_each_card(Case& c) {
  auto capable = capable_functions(c);
  const auto devices = rdma_devices(c);
  std::set<std::string> served;
  for (const auto& device : devices) {
    const auto target = c.link("/sys/class/infiniband/" + device + "/device");
    if (target.found()) served.insert(target.value.substr(target.value.rfind('/') + 1));
  }
  if (capable.empty() && devices.empty())
    return c.not_applicable("no RDMA card and no RDMA device on this host; bee0 does RoCE v2 in software");
  c.compare("RDMA devices", join(devices, " "));
  std::set<std::string_view> missing;
  for (const auto& [function, row] : capable)
    if (served.count(function) == 0) missing.insert(row->rdma);
  if (capable.empty() || served.size() + 1 > capable.size() || (!served.empty() && missing.empty()))
    return c.pass("/sys/class/infiniband/ holds " + join(devices, ", "));
  for (const auto& module : missing) {
    bool any_served = false;
    for (const auto& [function, row] : capable)
      any_served = any_served || (row->rdma == module && served.count(function) != 0);
    // One function of several without a device is how bonds and management functions look.
    if (any_served) {
      c.pass("/sys/class/infiniband/ holds " + join(devices, ", "));
      continue;
    }
    const bool loaded = c.directory("/sys/module/" + std::string(module)).found();
    const auto evidence = fmt::format(
        "PCI functions of {} are there; /sys/module/{} {}; /sys/class/infiniband/ holds {}", module, module,
        loaded ? "is loaded" : "is not there", devices.empty() ? "nothing" : join(devices, ", "));
    c.fail(evidence,
           fmt::format("the card has no RDMA device: {}",
                       loaded ? "its RDMA function is off or failed" : "its RDMA module is not loaded"),
           loaded ? "dmesg | grep " + std::string(module) : "modprobe " + std::string(module));
  }
}

void port_state(Case& c) {
  const auto all = ports(c);
  if (all.empty()) return c.not_applicable("no RDMA device");
  const bool any = std::any_of(all.begin(), all.end(), [](const Port& port) { return port.active(); });
  for (const auto& port : all) {
    const auto state = c.file(port.path + "/state");
    const auto physical = c.file(port.path + "/phys_state");
    const auto evidence = cite(state) + ", " + cite(physical);
    const auto flags =
        std::strtoul(c.text("/sys/class/net/" + port.netdev + "/flags").value_or("0").c_str(), nullptr, 16);
    const bool wanted = (flags & 1U) != 0;  // IFF_UP: somebody configured it
    if (port.active()) {
      c.compare(fmt::format("{}/{} state", port.device, port.number), "ACTIVE");
      c.pass(evidence);
    } else if (port.state == "INIT") {
      c.fail(evidence,
             fmt::format("{} port {} has a link but waits for an InfiniBand subnet manager", port.device,
                         port.number),
             "start opensm, or ask who runs the fabric's subnet manager");
    } else if (!any || wanted) {
      const auto cause = fmt::format("{} port {} is {}{}", port.device, port.number,
                                     port.state.empty() ? "in no known state" : port.state,
                                     wanted ? " although its interface " + port.netdev + " is up" : "");
      const auto fix = port.netdev.empty() ? "check cable, transceiver and the switch's port"
                       : wanted
                           ? "check cable, transceiver and the switch's port: `ethtool " + port.netdev + "`"
                           : "ip link set " + port.netdev + " up";
      if (any)
        c.warn(evidence, cause, fix);
      else
        c.fail(evidence, cause, fix);
    } else {
      c.pass(evidence + " (its interface is down; other ports are ACTIVE)");
    }
  }
}

void link_layer(Case& c) {
  std::map<std::string, std::string> seen;
  for (const auto& port : ports(c))
    if (port.active() && port.hardware())
      seen[port.link_layer] += (seen[port.link_layer].empty() ? "" : " ") + port.device;
  if (seen.empty()) return c.not_applicable("no active port of an RDMA card");
  std::string text;
  for (const auto& [layer, devices] : seen)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", layer, devices);
  c.compare("link layers", text);
  if (seen.size() == 1) return c.pass("link_layer " + text);
  c.warn(
      "link_layer " + text,
      "active ports speak different link layers: a job that takes all of them mixes fabrics that do not meet",
      "name the devices of one of them: NCCL_IB_HCA, UCX_NET_DEVICES; or change the port's type: mlxconfig "
      "-d DEVICE set LINK_TYPE_P1=2");
}

void rate(Case& c) {
  std::map<double, std::string> seen;
  std::string evidence;
  for (const auto& port : ports(c)) {
    if (!port.active() || !port.hardware()) continue;
    const auto reading = c.file(port.path + "/rate");
    seen[port.rate_gbps] = port.device;
    evidence += (evidence.empty() ? "" : "; ") + cite(reading);
    c.compare(fmt::format("{}/{} rate", port.device, port.number), std::string(trim(reading.value)));
  }
  if (seen.empty()) return c.not_applicable("no active port of an RDMA card");
  if (seen.size() == 1) return c.pass(evidence);
  c.warn(evidence,
         fmt::format("active ports run at different rates: {} at {:.0f} Gb/s, {} at {:.0f} Gb/s",
                     seen.begin()->second, seen.begin()->first, seen.rbegin()->second, seen.rbegin()->first),
         "leave the slow ones out (NCCL_IB_HCA), or check their cables and the switch's port speed");
}

void firmware(Case& c) {
  std::map<std::string, std::map<std::string, std::string>> by_board;
  std::string evidence;
  for (const auto& device : rdma_devices(c)) {
    const auto version = c.file("/sys/class/infiniband/" + device + "/fw_ver");
    const auto board = c.text("/sys/class/infiniband/" + device + "/board_id").value_or("");
    if (!version.found() || board.empty()) continue;
    by_board[board][std::string(trim(version.value))] += device + " ";
    c.compare(device + " firmware", std::string(trim(version.value)));
    evidence += (evidence.empty() ? "" : "; ") + cite(version);
  }
  if (by_board.empty()) return c.not_applicable("no RDMA device names its board and firmware");
  for (const auto& [board, versions] : by_board)
    if (versions.size() > 1)
      c.warn(evidence, "cards of one board type (" + board + ") run different firmware",
             "mlxfwmanager -u (or the vendor's tool), then reboot");
    else
      c.pass(evidence);
}

void node_guid(Case& c) {
  std::map<std::string, std::string> seen;
  const auto devices = rdma_devices(c);
  if (devices.empty()) return c.not_applicable("no RDMA device");
  for (const auto& device : devices) {
    const auto guid = c.file("/sys/class/infiniband/" + device + "/node_guid");
    if (!guid.found()) {
      c.unreadable(guid);
      continue;
    }
    const std::string value(trim(guid.value));
    const auto [other, fresh] = seen.emplace(value, device);
    if (value == "0000:0000:0000:0000")
      c.fail(cite(guid),
             device +
                 " has no GUID: a virtual function that was not given one; the connection manager refuses it",
             "on the hypervisor: `ip link set PF vf N node_guid XX:XX:XX:XX:XX:XX:XX:XX`, then rebind the "
             "function's driver");
    else if (!fresh)
      c.warn(cite(guid), device + " and " + other->second + " have the same GUID",
             "give each virtual function its own node_guid");
    else
      c.pass(cite(guid));
  }
}

// Without an RDMA device bee0 takes any interface with an address, and hosts should agree on its MTU.
void software_mtu(Case& c) {
  std::map<std::string, std::string> mtus;
  for (const auto& address : addresses(c)) {
    const auto interface = "/sys/class/net/" + address.interface;
    // A bridge is a host's own (docker0, virbr0): no path to another host begins at it.
    if (address.interface == "lo" || !c.names_in(interface + "/bridge").empty()) continue;
    if (const auto mtu = c.text(interface + "/mtu")) mtus[address.interface] = *mtu;
  }
  std::string used;
  for (const auto& [interface, mtu] : mtus) {
    used +=
        fmt::format("{}{} {}", used.empty() ? "; bee0's interfaces have the MTUs: " : ", ", interface, mtu);
    c.compare(interface + " MTU", mtu);
  }
  c.not_applicable("no RDMA device" + used);
}

void netdev_mtu(Case& c) {
  if (rdma_devices(c).empty()) return software_mtu(c);
  std::map<std::int64_t, std::string> seen;
  std::string evidence;
  for (const auto& port : roce_card_interfaces(c)) {
    const auto mtu = c.file("/sys/class/net/" + port.netdev + "/mtu");
    const auto value = number(mtu.value);
    if (!value) {
      c.unreadable(mtu);
      continue;
    }
    seen[*value] = port.netdev;
    evidence += (evidence.empty() ? "" : "; ") + cite(mtu);
    c.compare(port.netdev + " MTU", std::to_string(*value));
  }
  if (seen.empty()) return;
  if (seen.size() > 1)
    return c.fail(evidence, "RoCE interfaces of this host have different MTUs; a path's ends must agree",
                  fmt::format("ip link set {} mtu {} (and the switch's port)", seen.begin()->second,
                              seen.rbegin()->first));
  // 4096 bytes of payload and RoCE v2's headers: 4200 is the usual setting.
  if (seen.begin()->first >= 4200) return c.pass(evidence);
  c.warn(evidence,
         fmt::format("an Ethernet MTU of {} leaves RoCE packets of at most {} bytes", seen.begin()->first,
                     seen.begin()->first >= 2200   ? 2048
                     : seen.begin()->first >= 1124 ? 1024
                                                   : 512),
         "ip link set " + seen.begin()->second +
             " mtu 4200 (or 9000), on every host and switch port of the path");
}

// The largest InfiniBand MTU that fits, as the kernel counts it: 96 bytes of headers at most.
int roce_mtu(std::int64_t ethernet) {
  for (const int mtu : {4096, 2048, 1024, 512})
    if (ethernet - 96 >= mtu) return mtu;
  return 256;
}

void active_mtu(Case& c) {
  const auto cards = active_roce_cards(c);
  if (cards.empty()) return;
  const auto info = c.command("ibv_devinfo");
  if (!info.found()) return c.unreadable(info);
  bool any = false;
  std::string device;
  int number_of_port = 0;
  for (const auto& line : lines_of(info.value)) {
    const auto words = split(line, " \t");
    if (words.size() >= 2 && words[0] == "hca_id:") device = words[1];
    if (words.size() >= 2 && words[0] == "port:")
      number_of_port = static_cast<int>(number(words[1]).value_or(0));
    if (words.size() < 2 || words[0] != "active_mtu:") continue;
    for (const auto& port : cards) {
      if (port.device != device || port.number != number_of_port) continue;
      const auto active = number(words[1]).value_or(0);
      const auto ethernet = number(c.text("/sys/class/net/" + port.netdev + "/mtu").value_or(""));
      any = true;
      c.compare(device + " active_mtu", std::to_string(active));
      const auto evidence = cite(info, fmt::format("{} active_mtu {}", device, active));
      if (!ethernet || active >= roce_mtu(*ethernet)) {
        c.pass(evidence);
        continue;
      }
      c.warn(fmt::format("{}; /sys/class/net/{}/mtu = {}", evidence, port.netdev, *ethernet),
             fmt::format("{} uses packets of {} bytes although {} leaves room for {}", device, active,
                         port.netdev, roce_mtu(*ethernet)),
             fmt::format("ip link set {0} down && ip link set {0} up; then look again with ibv_devinfo",
                         port.netdev));
    }
  }
  if (!any) c.not_applicable("`ibv_devinfo` names none of the active RoCE ports");
}

constexpr std::array rows = {
    Check{"nic.devices", "Every RDMA card has an RDMA device", device_for_each_card,
          "'NET/IB : No device found', then sockets and a tenth of the speed",
          "load the driver's RDMA module",
          "NVIDIA/nccl#1044; "
          "https://gitverse.ru/githubmirror/rdma-core/content/master/kernel-boot/modules/rdma.conf"},
    Check{"nic.port_state", "The ports that are configured are ACTIVE", port_state,
          "'port error' events, 'Connection closed by remote peer', a rail that is missing",
          "cable, transceiver, switch port, ip link set up",
          "https://facebookresearch.github.io/gcm/docs/GCM_Health_Checks/health_checks/check-ib; "
          "NVIDIA/nccl#998"},
    Check{"nic.link_layer", "All active ports speak one link layer", link_layer,
          "connections between some pairs time out (status 12)", "choose the devices of one fabric",
          "NVIDIA/nccl#2428"},
    Check{
        "nic.rate", "All active ports run at one rate", rate, "the whole job runs at the slowest rail's pace",
        "leave slow ports out",
        "NVIDIA/nccl#709; "
        "https://facebookresearch.github.io/gcm/docs/GCM_Health_Checks/health_checks/check-ib/check-iblink"},
    Check{
        "nic.firmware", "Cards of one board type run one firmware", firmware,
        "one rail or host behaves differently", "update firmware",
        "https://facebookresearch.github.io/gcm/docs/GCM_Health_Checks/health_checks/check-ib/check-iblink"},
    Check{
        "nic.node_guid", "Every device has its own GUID", node_guid,
        "rdma_cm connections fail on virtual functions", "set node_guid on the hypervisor",
        "https://docs.nvidia.com/networking/display/mlnxofedv543770/single+root+io+virtualization+(sr-iov)"},
    Check{"nic.mtu", "RoCE interfaces have one MTU of at least 4200", netdev_mtu,
          "'local access violation', hangs of large messages only, lower bandwidth",
          "ip link set IFACE mtu 4200", "NVIDIA/nccl#1524; NVIDIA/nccl#1957; NVIDIA/nccl#709"},
    Check{"nic.active_mtu", "The RDMA MTU is what the interface's MTU allows", active_mtu,
          "lower bandwidth; ends that disagree on the MTU", "set the interface's MTU, take it down and up",
          "NVIDIA/nccl#1524"},
};

}  // namespace

std::span<const Check> nic_checks() { return rows; }

}  // namespace beeline::doctor
