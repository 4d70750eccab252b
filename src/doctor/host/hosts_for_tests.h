// Healthy hosts, in the shape that Linux shows them.
#pragma once

#include <fmt/format.h>

#include "doctor/host/tree_for_tests.h"

namespace beeline::doctor {

inline std::string pci_space(unsigned control, int acs) {
  std::string space(4096, '\0');
  space[0x34] = 0x60;
  space[0x60] = 0x10;
  space[0x68] = static_cast<char>(control & 0xFFU);
  space[0x69] = static_cast<char>(control >> 8U);
  if (acs >= 0) {
    space[0x100] = 0x0D;
    space[0x106] = static_cast<char>(acs);
  }
  return space;
}

inline void add_function(Tree& tree, const std::string& path, const char* speed, int node) {
  const auto name = path.substr(path.rfind('/') + 1);
  tree.links["/sys/bus/pci/devices/" + name] = path;
  for (const char* which : {"current", "max"}) {
    tree.files[fmt::format("{}/{}_link_speed", path, which)] = std::string(speed) + " GT/s PCIe\n";
    tree.files[fmt::format("{}/{}_link_width", path, which)] = "16\n";
  }
  tree.files[path + "/numa_node"] = std::to_string(node) + "\n";
  tree.files[path + "/config"] = pci_space(0x5020, 0);
  tree.files[path + "/iommu_group/type"] = "identity\n";
  tree.files[path + "/aer_dev_fatal"] = "Undefined 0\nTOTAL_ERR_FATAL 0\n";
  tree.files[path + "/aer_dev_nonfatal"] = "Undefined 0\nTOTAL_ERR_NONFATAL 0\n";
  tree.files[path + "/aer_dev_correctable"] = "Receiver Error 0\nTOTAL_ERR_COR 0\n";
}

struct Model {
  const char *name, *driver, *provider, *device, *rate, *speed, *firmware;
  bool vendor_tool;  // mlnx_qos and MLNX_OFED's sysfs
};
inline constexpr Model connectx5{"ConnectX-5",          "mlx5_core", "mlx5",       "mlx5_",
                                 "100 Gb/sec (4X EDR)", "8.0",       "16.35.3006", true};
inline constexpr Model connectx6{"ConnectX-6",          "mlx5_core", "mlx5",       "mlx5_",
                                 "200 Gb/sec (4X HDR)", "16.0",      "20.39.1002", true};
inline constexpr Model connectx7{"ConnectX-7",          "mlx5_core", "mlx5",       "mlx5_",
                                 "400 Gb/sec (4X NDR)", "32.0",      "28.39.1002", true};
inline constexpr Model broadcom{"BCM57508", "bnxt_en",     "bnxt_re", "bnxt_re", "200 Gb/sec (4X HDR)",
                                "16.0",     "227.0.130.0", false};
inline constexpr Model e810{"E810", "ice", "irdma", "irdma", "100 Gb/sec (4X EDR)", "16.0", "1.71", false};

inline Tree bare_host() {
  Tree tree;
  tree.files["/proc/self/limits"] =
      "Limit                     Soft Limit           Hard Limit           Units     \n"
      "Max open files            1024                 1048576              files     \n"
      "Max locked memory         unlimited            unlimited            bytes     \n";
  tree.files["/proc/self/status"] = "Name:\tbeeline\nCapEff:\t0000000000000000\n";
  tree.files["/proc/self/cgroup"] = "0::/\n";
  tree.files["/proc/meminfo"] = "MemTotal: 1000000 kB\nSwapTotal: 8000000 kB\nSwapFree: 8000000 kB\n";
  tree.files["/proc/sys/kernel/osrelease"] = "5.15.0-91-generic\n";
  tree.files["/proc/sys/kernel/numa_balancing"] = "0\n";
  tree.files["/proc/net/udp"] =
      "  sl  local_address rem_address   st\n   0: 0100007F:0035 00000000:0000 07\n";
  tree.files["/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"] = "performance\n";
  for (const char* node : {"node0", "node1"})
    tree.files[fmt::format("/sys/devices/system/node/{}/cpulist", node)] = "0-3\n";
  for (const char* name : {"arp_ignore", "arp_announce", "rp_filter"})
    tree.files[fmt::format("/proc/sys/net/ipv4/conf/all/{}", name)] = "0\n";
  tree.facts = {{"clock", "synchronized"},
                {"shm", "size_bytes=67108864000 free_bytes=67108864000"},
                {"environment", ""},
                {"hostname", "node7"},
                {"addresses", "lo 127.0.0.1/8\neno1 192.168.1.7/24\n"}};
  tree.commands = {{"dmesg", "[    0.000000] Linux version 5.15.0\n"},
                   {"ip -j rule", "[{\"priority\":0,\"src\":\"all\",\"table\":\"local\"}]"},
                   {"ip -j neigh", "[]"},
                   {"ip -j route show table all", "[]"},
                   {"nft list ruleset", ""},
                   {"rdma system show", "netns shared copy-on-fork on\n"},
                   {"rdma link show", ""},
                   {"systemctl show rdma-load-modules@rdma.service --property=LoadState,ActiveState,Result",
                    "LoadState=loaded\nActiveState=active\nResult=success\n"},
                   {"systemctl show openibd.service --property=LoadState,ActiveState",
                    "LoadState=not-found\nActiveState=inactive\n"}};
  return tree;
}

inline void add_gid(Tree& tree, const std::string& port, int index, const std::string& gid, const char* type,
                    const std::string& netdev) {
  tree.files[fmt::format("{}/gids/{}", port, index)] = gid + "\n";
  tree.files[fmt::format("{}/gid_attrs/types/{}", port, index)] = std::string(type) + "\n";
  tree.files[fmt::format("{}/gid_attrs/ndevs/{}", port, index)] = netdev + "\n";
}

inline void add_device(Tree& tree, const std::string& device, int n, const char* rate) {
  const auto base = "/sys/class/infiniband/" + device, port = base + "/ports/1";
  const auto netdev = fmt::format("ens{}", n + 1);
  tree.files[port + "/state"] = "4: ACTIVE\n";
  tree.files[port + "/phys_state"] = "5: LinkUp\n";
  tree.files[port + "/link_layer"] = "Ethernet\n";
  tree.files[port + "/rate"] = std::string(rate) + "\n";
  tree.files[base + "/node_guid"] = fmt::format("b83f:d203:00c0:000{}\n", n + 1);
  add_gid(tree, port, 0, fmt::format("fe80:0000:0000:0000:ba3f:d2ff:fec0:000{}", n + 1), "IB/RoCE v1",
          netdev);
  add_gid(tree, port, 1, fmt::format("fe80:0000:0000:0000:ba3f:d2ff:fec0:000{}", n + 1), "RoCE v2", netdev);
  add_gid(tree, port, 2, fmt::format("0000:0000:0000:0000:0000:ffff:0a00:0{}01", n + 1), "IB/RoCE v1",
          netdev);
  add_gid(tree, port, 3, fmt::format("0000:0000:0000:0000:0000:ffff:0a00:0{}01", n + 1), "RoCE v2", netdev);
  tree.files[port + "/gids/4"] = "0000:0000:0000:0000:0000:0000:0000:0000\n";
  tree.files["/sys/class/net/" + netdev + "/mtu"] = "9000\n";
  tree.files["/sys/class/net/" + netdev + "/flags"] = "0x1003\n";
  tree.files["/sys/class/net/" + netdev + "/carrier_down_count"] = "1\n";
  for (const char* name : {"arp_ignore", "arp_announce", "rp_filter"})
    tree.files[fmt::format("/proc/sys/net/ipv4/conf/{}/{}", netdev, name)] = "0\n";
  tree.facts["addresses"] += fmt::format("{} 10.0.{}.1/24\n", netdev, n + 1);
  tree.facts[fmt::format("access /dev/infiniband/uverbs{}", n)] = "ok";
  tree.files[fmt::format("/sys/class/infiniband_verbs/uverbs{}/ibdev", n)] = device + "\n";
  tree.files[fmt::format("/dev/infiniband/uverbs{}", n)] = "";
  tree.files["/dev/infiniband/rdma_cm"] = "";
  tree.files["/sys/module/rdma_ucm/refcnt"] = "0\n";
  tree.commands["rdma link show"] +=
      fmt::format("link {}/1 state ACTIVE physical_state LINK_UP netdev {}\n", device, netdev);
  auto& routes = tree.commands["ip -j route show table all"];
  routes.pop_back();
  routes += fmt::format("{}{{\"dst\":\"10.0.{}.0/24\",\"dev\":\"{}\"}}]", routes.size() > 1 ? "," : "", n + 1,
                        netdev);
  tree.commands["ibv_devinfo"] +=
      fmt::format("hca_id:\t{}\n\tport:\t1\n\t\tactive_mtu:\t\t4096 (5)\n", device);
}

inline void add_quality(Tree& tree, const Model& model, const std::string& device,
                        const std::string& netdev) {
  const auto port = "/sys/class/infiniband/" + device + "/ports/1";
  for (const char* counter : {"symbol_error", "link_error_recovery", "port_rcv_errors"})
    tree.files[port + "/counters/" + counter] = "0\n";
  tree.files[port + "/counters/port_rcv_packets"] = "1000000000\n";
  for (const char* counter :
       {"local_ack_timeout_err", "packet_seq_err", "out_of_sequence", "rnr_nak_retry_err", "rp_cnp_ignored"})
    tree.files[port + "/hw_counters/" + counter] = "0\n";
  tree.files[port + "/hw_counters/np_ecn_marked_roce_packets"] = "100\n";
  tree.files[port + "/hw_counters/np_cnp_sent"] = "90\n";
  tree.commands["ethtool -S " + netdev] =
      "NIC statistics:\n     rx_discards_phy: 0\n     rx_crc_errors_phy: 0\n     rx_prio3_pause: 12\n     "
      "tx_pause_storm_error_events: 0\n";
  tree.commands["ethtool -g " + netdev] =
      "Ring parameters:\nPre-set maximums:\nRX:\t\t8192\nTX:\t\t8192\nCurrent hardware "
      "settings:\nRX:\t\t1024\nTX:\t\t1024\n";
  tree.commands["ethtool -a " + netdev] = "Pause parameters:\nAutonegotiate:\toff\nRX:\t\toff\nTX:\t\toff\n";
  tree.files["/sys/class/infiniband/" + device + "/tc/1/traffic_class"] = "Global tclass=106\n";
  if (model.vendor_tool) {
    tree.commands["mlnx_qos -i " + netdev] =
        "Priority trust state: dscp\ndscp2prio mapping:\n\tprio:0 dscp:07,06,05,04,03,02,01,00,\n\tprio:3 "
        "dscp:31,30,29,28,27,26,25,24,\n"
        "PFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n\tenabled     0   0   0   1   0   "
        "0   0   0\n";
    for (const char* role : {"roce_np", "roce_rp"})
      tree.files[fmt::format("/sys/class/net/{}/ecn/{}/enable/3", netdev, role)] = "1\n";
    tree.files["/sys/class/net/" + netdev + "/ecn/roce_np/cnp_dscp"] = "48\n";
  } else {
    tree.commands["dcb pfc show dev " + netdev] =
        "pfc-cap 8 macsec-bypass off delay 0\nprio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off\n";
    tree.commands["dcb -N app show dev " + netdev] = "dscp-prio 26:3 48:6\n";
  }
}

inline Tree card_host(const Model& model) {
  auto tree = bare_host();
  for (int n = 0; n < 2; ++n) {
    const auto device = fmt::format("{}{}", model.device, n);
    const auto root = fmt::format("/sys/devices/pci0000:{}0/0000:{}0:01.0", n + 1, n + 1);
    const auto card = fmt::format("{}/0000:{}1:00.0", root, n + 1);
    add_function(tree, root, model.speed, n);
    add_function(tree, card, model.speed, n);
    tree.files[card + "/class"] = "0x020000\n";
    tree.links[card + "/driver"] = std::string("/sys/bus/pci/drivers/") + model.driver;
    tree.links["/sys/class/infiniband/" + device + "/device"] = card;
    tree.files["/sys/class/infiniband/" + device + "/fw_ver"] = std::string(model.firmware) + "\n";
    tree.files["/sys/class/infiniband/" + device + "/board_id"] = "MT_0000000838\n";
    add_device(tree, device, n, model.rate);
    add_quality(tree, model, device, fmt::format("ens{}", n + 1));
    tree.commands["ibstat"] += "CA '" + device + "'\n";
    const auto gpu_root = fmt::format("/sys/devices/pci0000:{}0/0000:{}0:02.0", n + 1, n + 1);
    const auto gpu = fmt::format("{}/0000:{}2:00.0", gpu_root, n + 1);
    add_function(tree, gpu, model.speed, n);
    tree.files[gpu + "/class"] = "0x030200\n";
    tree.files[gpu + "/vendor"] = "0x10de\n";
  }
  tree.files[std::string("/sys/bus/pci/drivers/") + model.driver + "/module"] = "";
  tree.files["/sys/kernel/mm/memory_peers/nvidia-peermem/version"] = "550.54\n";
  tree.files["/sys/module/nvidia_peermem/refcnt"] = "0\n";
  tree.files["/proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54\n";
  tree.files[std::string("/usr/lib/x86_64-linux-gnu/libibverbs/lib") + model.provider + "-rdmav34.so"] = "";
  if (std::string_view(model.provider) == "mlx5")
    for (const char* module : {"mlx5_core", "mlx5_ib"})
      tree.files[fmt::format("/sys/module/{}/version", module)] = "23.10-1.1.9\n";
  return tree;
}

inline Tree efa_host() {
  auto tree = bare_host();
  const std::string card = "/sys/devices/pci0000:00/0000:00:06.0",
                    port = "/sys/class/infiniband/rdmap0s6/ports/1";
  add_function(tree, card, "16.0", 0);
  tree.files[card + "/class"] = "0x020000\n";
  tree.links[card + "/driver"] = "/sys/bus/pci/drivers/efa";
  tree.files["/sys/bus/pci/drivers/efa/module"] = "";
  tree.links["/sys/class/infiniband/rdmap0s6/device"] = card;
  tree.files[port + "/state"] = "4: ACTIVE\n";
  tree.files[port + "/phys_state"] = "5: LinkUp\n";
  tree.files[port + "/link_layer"] = "Unspecified\n";
  tree.files[port + "/rate"] = "100 Gb/sec (4X EDR)\n";
  tree.files["/sys/class/infiniband/rdmap0s6/node_guid"] = "0206:eb00:0000:0001\n";
  tree.files["/sys/class/infiniband_verbs/uverbs0/ibdev"] = "rdmap0s6\n";
  tree.files["/dev/infiniband/uverbs0"] = tree.files["/dev/infiniband/rdma_cm"] = "";
  tree.files["/sys/module/rdma_ucm/refcnt"] = "0\n";
  tree.facts["access /dev/infiniband/uverbs0"] = "ok";
  tree.files["/usr/lib64/libibverbs/libefa-rdmav34.so"] = "";
  tree.commands["rdma link show"] = "link rdmap0s6/1 state ACTIVE physical_state LINK_UP\n";
  return tree;
}

inline Tree rxe_host() {
  auto tree = bare_host();
  add_device(tree, "rxe0", 0, "2.5 Gb/sec (1X SDR)");
  tree.files["/sys/class/infiniband/rxe0/fw_ver"] = "\n";
  tree.files["/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so"] = "";
  return tree;
}

}  // namespace beeline::doctor
