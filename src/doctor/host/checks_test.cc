// Healthy hosts raise no alarm; one wrong fact changes exactly the checks that it should.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "doctor/host/hosts_for_tests.h"
#include "doctor/host/report.h"

namespace beeline::doctor {
namespace {

std::map<std::string, Result> examine_all(Tree tree) {
  std::map<std::string, Result> results;
  const auto chosen = choose_checks("");
  for (auto& result : examine_host(tree, *chosen).results)
    results.emplace(std::string(result.check->id), result);
  return results;
}

void expect_healthy(const std::string& what, Tree tree) {
  for (const auto& [id, result] : examine_all(std::move(tree)))
    EXPECT_TRUE(result.status == Status::ok || result.status == Status::not_applicable)
        << what << ": " << id << " is " << name(result.status) << ": " << result.evidence << "; "
        << result.cause;
}

TEST(HealthyHosts, RaiseNoAlarm) {
  for (const auto& model : {connectx5, connectx6, connectx7, broadcom, e810})
    expect_healthy(model.name, card_host(model));
  expect_healthy("EFA", efa_host());
  expect_healthy("rxe", rxe_host());
  expect_healthy("no RDMA", bare_host());
}

enum class Table { file, fact, command, environment };
struct Change {
  Table table;
  std::string name, value;
};
struct Flip {
  const char* checks;  // that become a warning or failure, separated by blanks
  std::function<Tree()> host;
  std::vector<Change> changes;
  // That change, too, but raise no alarm: they do not apply any more, or only now.
  const char* quiet = "";
};

const auto cx7 = [] { return card_host(connectx7); };
const std::string ib = "/sys/class/infiniband/mlx5_0", port = ib + "/ports/1",
                  root_port = "/sys/devices/pci0000:10/0000:10:01.0", card = root_port + "/0000:11:00.0",
                  statistics = "ethtool -S ens1";
Change file(const std::string& name, const std::string& value) { return {Table::file, name, value}; }
Change fact(const std::string& name, const std::string& value) { return {Table::fact, name, value}; }
Change command(const std::string& name, const std::string& value) { return {Table::command, name, value}; }
Change variable(const std::string& value) { return {Table::environment, "", value}; }
Change log(const std::string& line) { return command("dmesg", line + "\n"); }
// The first card's address in the second one's subnet.
Change one_subnet() { return fact("addresses", "ens1 10.0.1.1/8\nens2 10.0.2.1/8\n"); }

std::string mlnx_qos(const char* trust, const char* pfc, const char* map = "\tprio:3 dscp:26,\n") {
  return std::string("Priority trust state: ") + trust + "\ndscp2prio mapping:\n" + map +
         "PFC configuration:\n\tpriority 0 1 2 3 4 5 6 7\n\tenabled " + pfc + "\n";
}

const std::vector<Flip>& flips() {
  static const std::vector<Flip> all = {
      {"host.memlock",
       cx7,
       {file("/proc/self/limits",
             "Max open files 1024 1048576 files\nMax locked memory         65536 65536 bytes\n")}},
      {"host.nofile",
       cx7,
       {file("/proc/self/limits",
             "Max open files            256 1024 files\nMax locked memory         unlimited unlimited "
             "bytes\n")}},
      {"host.swap", cx7, {file("/proc/meminfo", "SwapTotal: 8000000 kB\nSwapFree: 1000000 kB\n")}},
      {"host.governor", cx7, {file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n")}},
      {"host.numa_balancing", cx7, {file("/proc/sys/kernel/numa_balancing", "1\n")}},
      {"host.clock", cx7, {fact("clock", "unsynchronized")}},
      {"host.oom", cx7, {log("[1.0] Out of memory: Killed process 77 (python)")}},
      {"host.hung_tasks", cx7, {log("[1.0] INFO: task python:77 blocked for more than 120 seconds.")}},
      {"pcie.link_speed pcie.slot_bandwidth", cx7, {file(card + "/current_link_speed", "16.0 GT/s PCIe\n")}},
      {"pcie.link_width pcie.slot_bandwidth", cx7, {file(card + "/current_link_width", "8\n")}},
      {"pcie.max_read_request", cx7, {file(card + "/config", pci_space(0x0020, 0))}},
      {"pcie.max_payload", cx7, {file(card + "/config", pci_space(0x5040, 0))}},
      {"pcie.acs", cx7, {file(root_port + "/config", pci_space(0x5020, 0x1D))}},
      {"pcie.iommu", cx7, {file(card + "/iommu_group/type", "DMA-FQ\n")}},
      {"pcie.aer", cx7, {file(card + "/aer_dev_nonfatal", "TOTAL_ERR_NONFATAL 2\n")}},
      {"pcie.numa_node", cx7, {file(card + "/numa_node", "-1\n")}},
      {"nic.rate", cx7, {file(port + "/rate", "100 Gb/sec (4X EDR)\n")}},
      {"nic.port_state",
       cx7,
       {file(port + "/state", "1: DOWN\n"), file(port + "/phys_state", "2: Polling\n")}},
      {"nic.link_layer", cx7, {file(port + "/link_layer", "InfiniBand\n")}},
      {"nic.firmware", cx7, {file(ib + "/fw_ver", "28.36.1010\n")}},
      {"nic.node_guid", cx7, {file(ib + "/node_guid", "0000:0000:0000:0000\n")}},
      {"nic.mtu", cx7, {file("/sys/class/net/ens1/mtu", "4500\n")}},
      {"nic.active_mtu",
       cx7,
       {command("ibv_devinfo",
                "hca_id: mlx5_0\n port: 1\n  active_mtu: 1024 (3)\nhca_id: mlx5_1\n port: 1\n  active_mtu: "
                "4096 (5)\n")}},
      {"nic.flaps", cx7, {file("/sys/class/net/ens1/carrier_down_count", "40\n")}},
      {"nic.link_errors", cx7, {file(port + "/counters/symbol_error", "7\n")}},
      {"nic.physical_errors", cx7, {command(statistics, "     rx_crc_errors_phy: 3\n")}},
      {"nic.discards", cx7, {command(statistics, "     rx_discards_phy: 3\n")}},
      {"nic.pause_storm", cx7, {command(statistics, "     tx_pause_storm_error_events: 3\n")}},
      {"nic.rings",
       cx7,
       {command("ethtool -g ens1", "Pre-set maximums:\nRX: 8192\nCurrent hardware settings:\nRX: 128\n")}},
      {"nic.bond", cx7, {file("/sys/class/net/ens1/bonding/mode", "balance-rr 0\n")}},
      {"nic.driver_health",
       cx7,
       {log("[1.0] mlx5_core 0000:11:00.0: device's health compromised - reached miss count")}},
      {"roce.gid_types",
       cx7,
       {file(port + "/gids/4", "0000:0000:0000:0000:0000:ffff:c0a8:0107\n"),
        file(port + "/gid_attrs/ndevs/4", "eno1\n")}},
      {"roce.gid_routable",
       rxe_host,
       {file("/sys/class/infiniband/rxe0/ports/1/gid_attrs/types/3", "IB/RoCE v1\n")},
       "container.gid_address roce.gid_family roce.gid_index"},
      {"roce.gid_v2",
       rxe_host,
       {file("/sys/class/infiniband/rxe0/ports/1/gid_attrs/types/3", "IB/RoCE v1\n"),
        file("/sys/class/infiniband/rxe0/ports/1/gid_attrs/types/1", "IB/RoCE v1\n")},
       "container.gid_address roce.gid_family roce.gid_index roce.gid_routable"},
      {"roce.gid_index", cx7, {file(port + "/gid_attrs/types/2", "RoCE v2\n")}},
      {"roce.gid_family roce.gid_index",
       cx7,
       {file(port + "/gid_attrs/types/3", "IB/RoCE v1\n"),
        file(port + "/gids/4", "2001:0db8:0000:0000:0000:0000:0000:0001\n"),
        file(port + "/gid_attrs/types/4", "RoCE v2\n"),
        fact("addresses", "ens1 10.0.1.1/24\nens1 2001:db8::1/64\nens2 10.0.2.1/24\n")}},
      {"roce.cm_mode",
       cx7,
       {file("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode", "IB/RoCE v1\n")}},
      {"roce.foreign_pause roce.pfc",
       cx7,
       {command("mlnx_qos -i ens1", mlnx_qos("dscp", "0 0 0 0 0 0 0 0"))}},
      {"roce.pfc_few", cx7, {command("mlnx_qos -i ens1", mlnx_qos("dscp", "1 1 1 1 1 1 1 1"))}},
      {"roce.one_pause", cx7, {command("ethtool -a ens1", "RX: on\nTX: on\n")}},
      {"roce.trust", cx7, {command("mlnx_qos -i ens1", mlnx_qos("pcp", "0 0 0 1 0 0 0 0"))}},
      {"roce.dscp",
       cx7,
       {command("mlnx_qos -i ens1", mlnx_qos("dscp", "0 0 0 1 0 0 0 0", "\tprio:0 dscp:26,\n"))}},
      {"roce.ecn", cx7, {file("/sys/class/net/ens1/ecn/roce_np/enable/3", "0\n")}},
      {"roce.cnp", cx7, {file("/sys/class/net/ens1/ecn/roce_np/cnp_dscp", "0\n")}},
      {"roce.retransmissions", cx7, {file(port + "/hw_counters/local_ack_timeout_err", "91000\n")}},
      {"roce.rnr", cx7, {file(port + "/hw_counters/rnr_nak_retry_err", "5\n")}},
      {"roce.cnp_counters", cx7, {file(port + "/hw_counters/np_cnp_sent", "0\n")}},
      {"roce.foreign_pause", cx7, {command(statistics, "     rx_prio5_pause: 9\n")}},
      {"gpu.xid", cx7, {log("[1.0] NVRM: Xid (PCI:0000:12:00): 79, GPU has fallen off the bus.")}},
      {"gpu.driver_versions", cx7, {log("[1.0] NVRM: API mismatch: the client has the version 1")}},
      {"gpu.distance",
       cx7,
       {file("/sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0/numa_node", "0\n"),
        file("/sys/devices/pci0000:10/0000:10:02.0/0000:12:00.0/numa_node", "0\n"),
        file("/sys/devices/pci0000:30/0000:30:01.0/numa_node", "1\n"),
        file("/sys/bus/pci/devices/0000:30:01.0/class", "0x030200\n"),
        file("/sys/bus/pci/devices/0000:30:01.0/vendor", "0x10de\n"),
        file("/sys/bus/pci/devices/0000:30:01.0/numa_node", "1\n")}},
      {"gpu.fabric_manager",
       cx7,
       {file("/sys/bus/pci/devices/0000:40:00.0/vendor", "0x10de\n"),
        file("/sys/bus/pci/devices/0000:40:00.0/class", "0x068000\n"),
        command("systemctl show nvidia-fabricmanager.service --property=LoadState,ActiveState",
                "LoadState=loaded\nActiveState=failed\n")}},
      {"container.device_access", cx7, {fact("access /dev/infiniband/uverbs0", "Permission denied")}},
      {"container.ipc_lock host.memlock",
       cx7,
       {file("/.dockerenv", ""),
        file("/proc/self/limits",
             "Max open files            1024 1048576 files\nMax locked memory         65536 65536 bytes\n")},
       "services.boot"},
      {"container.netns_mode services.rdma_link",
       cx7,
       {file("/.dockerenv", ""), command("rdma system show", "netns exclusive\n"),
        command("rdma link show", "")},
       "container.ipc_lock services.boot"},
      {"container.gid_address",
       cx7,
       {fact("addresses", "eth0 172.17.0.2/16\n")},
       "path.public path.routes path.rp_filter"},
      {"container.shm", cx7, {fact("shm", "size_bytes=67108864 free_bytes=67108864")}},
      {"container.rdma_cgroup",
       cx7,
       {file("/sys/fs/cgroup/rdma.max", "mlx5_0 hca_handle=2 hca_object=20\n")}},
      {"path.arp_announce path.arp_ignore path.policy_routes", cx7, {one_subnet()}},
      {"path.arp_announce path.arp_ignore path.policy_routes path.rp_filter",
       cx7,
       {one_subnet(), file("/proc/sys/net/ipv4/conf/ens1/rp_filter", "1\n")}},
      {"path.public", bare_host, {fact("addresses", "eth0 8.8.8.8/24\n")}},
      {"path.duplicate_address", bare_host, {fact("addresses", "eth0 10.0.0.1/24\neth1 10.0.0.1/24\n")}},
      {"path.neighbours",
       cx7,
       {command("ip -j neigh", R"([{"dst":"10.0.1.9","dev":"ens1","state":["FAILED"]}])")}},
      {"path.routes",
       cx7,
       {command("ip -j route show table all", R"([{"dst":"10.0.2.0/24","dev":"ens2"}])")}},
      {"path.firewall",
       bare_host,
       {command("nft list ruleset",
                "chain input { type filter hook input priority 0; policy drop; tcp dport 22 accept }")}},
      {"path.firewall",
       bare_host,
       {command(
           "nft list ruleset",
           "chain input {\n type filter hook input priority 0; policy accept;\n udp dport 4791 drop\n}")}},
      {"path.port_4791",
       bare_host,
       {file("/proc/net/udp", " sl local_address\n 1: 00000000:12B7 00000000:0000 07\n")}},
      {"services.rdma_link", cx7, {command("rdma link show", "link mlx5_1/1 state ACTIVE\n")}},
      {"services.boot",
       cx7,
       {command("systemctl show rdma-load-modules@rdma.service --property=LoadState,ActiveState,Result",
                "LoadState=loaded\nActiveState=failed\n")}},
      {"services.openibd",
       cx7,
       {command("systemctl show openibd.service --property=LoadState,ActiveState",
                "LoadState=loaded\nActiveState=failed\n")}},
      {"services.ibstat", cx7, {command("ibstat", "CA 'mlx5_1'\n")}},
      {"services.module_symbols",
       cx7,
       {log("[1.0] nv_peer_mem: Unknown symbol ib_register_peer_memory_client (err 0)")}},
      {"services.driver_versions", cx7, {file("/sys/module/mlx5_ib/version", "5.0-0\n")}},
      {"nccl.ib_disable", cx7, {variable("NCCL_IB_DISABLE=1")}},
      {"nccl.ib_hca", cx7, {variable("NCCL_IB_HCA=mlx5_7")}},
      {"nccl.socket_ifname", cx7, {variable("NCCL_SOCKET_IFNAME=enp9")}},
      {"nccl.gloo_ifname", cx7, {variable("GLOO_SOCKET_IFNAME=lo")}},
      {"nccl.gid_index", cx7, {variable("NCCL_IB_GID_INDEX=2")}},
      {"nccl.net", cx7, {variable("NCCL_NET=Socket")}},
      {"nccl.ucx_devices", cx7, {variable("UCX_NET_DEVICES=mlx5_9:1")}},
      {"nccl.traffic_class roce.dscp", cx7, {variable("NCCL_IB_TC=26")}},
      {"nccl.timeout", cx7, {variable("NCCL_IB_TIMEOUT=5")}},
      {"nccl.retry_count", cx7, {variable("NCCL_IB_RETRY_CNT=1")}},
      {"nccl.forced", cx7, {variable("NCCL_ALGO=Tree")}},
      {"nccl.debug", cx7, {variable("NCCL_DEBUG=TRACE")}},
      {"nccl.gdr", cx7, {variable("NCCL_NET_GDR_LEVEL=LOC")}},
      {"nccl.roce_version", cx7, {variable("NCCL_IB_ROCE_VERSION_NUM=1")}},
      {"nccl.addr_family", cx7, {variable("NCCL_IB_ADDR_FAMILY=AF_INET6")}},
      {"nccl.conf", cx7, {file("/etc/nccl.conf", "NCCL_DEBUG=WARN\n"), variable("NCCL_DEBUG=INFO")}},
  };
  return all;
}

// Facts that are wrong because something is missing.
struct Removal {
  const char* checks;
  std::vector<std::string> below;
};
const std::vector<Removal>& removals() {
  static const std::vector<Removal> all = {
      {"container.device_nodes", {"/dev/infiniband/uverbs0"}},
      {"container.rdma_cm", {"/dev/infiniband/rdma_cm"}},
      {"services.rdma_ucm", {"/sys/module/rdma_ucm"}},
      {"services.uverbs", {"/sys/class/infiniband_verbs/uverbs0"}},
      {"services.provider", {"/usr/lib/x86_64-linux-gnu/libibverbs"}},
      {"gpu.direct gpu.peermem", {"/sys/kernel/mm/memory_peers"}},
      {"roce.gid_present", {port + "/gids/0", port + "/gids/1", port + "/gids/2", port + "/gids/3"}},
      {"nic.devices", {"/sys/class/infiniband/", "/sys/class/infiniband_verbs/", "/sys/module/mlx5_ib"}},
  };
  return all;
}

std::string alarmed(const std::map<std::string, Result>& results) {
  std::string ids;
  for (const auto& [id, result] : results)
    if (result.status == Status::failure || result.status == Status::warning)
      ids += (ids.empty() ? "" : " ") + id;
  return ids;
}

void apply(Tree& tree, const Change& change) {
  switch (change.table) {
    case Table::file:
      tree.files[change.name] = change.value;
      break;
    case Table::fact:
      tree.facts[change.name] = change.value;
      break;
    case Table::command:
      tree.commands[change.name] = change.value;
      break;
    case Table::environment:
      tree.facts["environment"] += change.value + "\n";
      break;
  }
}

// What a check said is another status now.
std::string changed(const std::map<std::string, Result>& before, const std::map<std::string, Result>& now) {
  std::string ids;
  for (const auto& [id, result] : now)
    if (before.at(id).status != result.status) ids += (ids.empty() ? "" : " ") + id;
  return ids;
}

TEST(OneWrongFact, AlarmsExactlyTheDeclaredChecks) {
  for (const auto& flip : flips()) {
    auto tree = flip.host();
    const auto healthy = examine_all(tree);
    for (const auto& change : flip.changes) apply(tree, change);
    const auto results = examine_all(tree);
    EXPECT_EQ(alarmed(results), flip.checks);
    auto expected = split(std::string(flip.checks) + " " + flip.quiet, " ");
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(changed(healthy, results), join(expected, " "));
  }
}

TEST(OneMissingFact, AlarmsExactlyTheDeclaredChecks) {
  for (const auto& removal : removals()) {
    auto tree = cx7();
    for (const auto& path : removal.below) tree.remove_below(path);
    EXPECT_EQ(alarmed(examine_all(tree)), removal.checks);
  }
}

TEST(Registry, EveryCheckCanAlarmAndSaysWhereItComesFrom) {
  std::set<std::string> can;
  for (const auto& flip : flips())
    for (const auto& id : split(flip.checks, " ")) can.insert(id);
  for (const auto& removal : removals())
    for (const auto& id : split(removal.checks, " ")) can.insert(id);
  EXPECT_GE(registry().size(), 50U);
  std::set<std::string_view> ids;
  for (const auto& check : registry()) {
    EXPECT_TRUE(ids.insert(check.id).second) << check.id;
    EXPECT_EQ(can.count(std::string(check.id)), 1U) << check.id << " never alarms in these tests";
    EXPECT_FALSE(check.title.empty() || check.symptom.empty() || check.fix.empty() || check.source.empty())
        << check.id;
  }
}

TEST(Registry, EveryCheckRunsOnEveryHost) {
  for (const auto& [id, result] : examine_all(cx7())) EXPECT_FALSE(result.evidence.empty()) << id;
  EXPECT_EQ(examine_all(bare_host()).size(), registry().size());
}

TEST(Unreadable, IsNotCalledAbsentOrFine) {
  auto tree = cx7();
  tree.refused = {"dmesg", card + "/config", "/sys/class/net/ens1/carrier_down_count"};
  const auto results = examine_all(tree);
  for (const char* id : {"host.oom", "pcie.max_read_request", "nic.flaps"}) {
    EXPECT_EQ(results.at(id).status, Status::unreadable) << id;
    EXPECT_TRUE(contains(results.at(id).evidence, "Permission denied")) << results.at(id).evidence;
  }
  // The kernel shows an ordinary user only the header.
  tree = cx7();
  tree.files[card + "/config"].resize(64);
  EXPECT_TRUE(contains(examine_all(tree).at("pcie.max_payload").evidence, "CAP_SYS_ADMIN"));
}

TEST(Report, SaysWhatMattersFirstAndCountsTheRest) {
  auto tree = bare_host();
  auto report = examine_host(tree, *choose_checks(""));
  report.remarks = {"it is\x1b another host"};
  const auto text = to_text(report, {}), all = to_text(report, {false, true});
  EXPECT_EQ(text.substr(text.find('\n'), 29), "\n\nit is\\x1b another host\n\nThi") << text;
  EXPECT_TRUE(contains(text, "checks (-v: which, and why)"));
  EXPECT_FALSE(contains(text, "nic.mtu"));
  EXPECT_TRUE(contains(all, "nic.mtu"));
  EXPECT_TRUE(contains(to_json(report), "remarks"));
}

TEST(Report, CountsOneAsOne) {
  auto tree = cx7();
  tree.facts["environment"] = "NCCL_DEBUG=TRACE\n";
  EXPECT_TRUE(contains(to_text(examine_host(tree, *choose_checks("nccl.debug")), {}),
                       ": 1 check: 0 failures, 1 warning, 0 unreadable"));
}

TEST(Report, ChoosesSortsAndEnds) {
  EXPECT_FALSE(choose_checks("nonsense"));
  EXPECT_FALSE(choose_checks(","));
  EXPECT_EQ(choose_checks("nic.mtu")->size(), 1U);
  auto tree = cx7();
  EXPECT_EQ(exit_status(examine_host(tree, *choose_checks(""))), 0);
  tree.facts["environment"] = "NCCL_DEBUG=TRACE\n";
  EXPECT_EQ(exit_status(examine_host(tree, *choose_checks(""))), 2);
  tree.facts["environment"] += "NCCL_IB_DISABLE=1\n";
  const auto report = examine_host(tree, *choose_checks(""));
  EXPECT_EQ(exit_status(report), 3);
  const auto text = to_text(report, {});
  EXPECT_LT(text.find("nccl.ib_disable"), text.find("nccl.debug"));
  EXPECT_FALSE(contains(text, "\x1b"));
  EXPECT_TRUE(contains(to_text(report, {true, false}), "\x1b[1;31mfailure"));
}

}  // namespace
}  // namespace beeline::doctor
