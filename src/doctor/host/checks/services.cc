// Modules, services and libraries: what "rdma link show", "ibstat" and "systemctl status
// rdma-core" are meant to tell.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "doctor/host/checks/groups.h"
#include "doctor/host/checks/kernel_log.h"
#include "doctor/host/devices.h"
#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

void uverbs_module(Case& c) {
  const auto devices = rdma_devices(c);
  if (devices.empty()) return c.not_applicable("no RDMA device");
  std::size_t count = 0;
  for (const auto& name : c.names_in("/sys/class/infiniband_verbs"))
    count += starts_with(name, "uverbs") ? 1 : 0;
  const auto evidence = fmt::format(
      "/sys/class/infiniband/: {}; /sys/class/infiniband_verbs/: {} uverbs devices", devices.size(), count);
  if (count >= devices.size()) return c.pass(evidence);
  c.fail(evidence,
         "the kernel has RDMA devices that no program can use: ib_uverbs is not loaded, or hides them",
         "modprobe ib_uverbs");
}

void connection_manager(Case& c) {
  if (rdma_devices(c).empty()) return c.not_applicable("no RDMA device");
  if (c.directory("/sys/module/rdma_ucm").found()) return c.pass("/sys/module/rdma_ucm is there");
  if (c.directory("/sys/class/misc/rdma_cm").found()) return c.pass("/sys/class/misc/rdma_cm is there");
  c.warn("/sys/module/rdma_ucm is not there", "the RDMA connection manager is not available to programs",
         "modprobe rdma_ucm");
}

void rdma_tool(Case& c) {
  const auto devices = rdma_devices(c);
  if (devices.empty()) return c.not_applicable("no RDMA device");
  const auto links = c.command("rdma link show");
  if (!links.found()) return c.unreadable(links);
  std::string missing;
  for (const auto& device : devices)
    if (!contains(links.value, "link " + device + "/")) missing += (missing.empty() ? "" : " ") + device;
  if (missing.empty())
    return c.pass(cite(links, fmt::format("all {} devices of /sys/class/infiniband", devices.size())));
  c.warn(cite(links, "does not show " + missing),
         "devices that sysfs shows are not of this network namespace",
         "see container.netns_mode; `rdma dev set DEVICE netns NAMESPACE`");
}

// "systemctl status rdma-core": rdma-core is a package. What it starts is this unit.
void boot_units(Case& c) {
  const auto devices = rdma_devices(c);
  if (devices.empty()) return c.not_applicable("no RDMA device");
  if (in_container(c)) return c.not_applicable("in a container: the host loads the modules");
  const auto unit =
      c.command("systemctl show rdma-load-modules@rdma.service --property=LoadState,ActiveState,Result");
  if (unit.unreadable()) return c.unreadable(unit);
  if (!unit.found()) return c.not_applicable("systemd does not answer: " + unit.why);
  const auto state = field(unit.value, "ActiveState", '=').value_or("");
  if (state == "failed")
    return c.warn(
        cite(unit), "the service that loads RDMA modules at boot failed",
        "journalctl -u rdma-load-modules@rdma.service; systemctl restart rdma-load-modules@rdma.service");
  c.pass(cite(unit) +
         " (rdma-core is a package, not a service: `systemctl status rdma-core` finds nothing on a healthy "
         "host)");
}

void openibd(Case& c) {
  if (in_container(c)) return c.not_applicable("in a container: the host runs openibd");
  const auto unit = c.command("systemctl show openibd.service --property=LoadState,ActiveState");
  if (unit.unreadable()) return c.unreadable(unit);
  if (!unit.found()) return c.not_applicable("systemd does not answer: " + unit.why);
  if (field(unit.value, "LoadState", '=').value_or("") != "loaded")
    return c.not_applicable("no openibd here: the kernel's own RDMA drivers are used");
  const auto state = field(unit.value, "ActiveState", '=').value_or("");
  if (state == "active") return c.pass(cite(unit));
  c.fail(cite(unit), "MLNX_OFED is installed, and its service is " + state,
         "systemctl enable --now openibd; journalctl -u openibd");
}

void ibstat(Case& c) {
  const auto all = ports(c);
  const bool mad =
      std::any_of(all.begin(), all.end(), [](const Port& port) { return starts_with(port.driver, "mlx"); });
  if (!mad)
    return c.not_applicable("no mlx4 or mlx5 card; others answer `ibstat` only in part, or not at all");
  const auto printed = c.command("ibstat");
  if (!printed.found()) return c.unreadable(printed);
  std::string missing;
  for (const auto& port : all)
    if (port.hardware() && !contains(printed.value, "CA '" + port.device + "'"))
      missing += (missing.empty() ? "" : " ") + port.device;
  if (missing.empty())
    return c.pass(cite(printed, "shows every card; on RoCE its 'Base lid: 0' and 'SM lid: 0' are normal"));
  c.warn(cite(printed, "does not show " + missing),
         "ib_umad does not serve these devices; tools that use it (ibstat, ibping, perfquery) miss them, "
         "RoCE traffic does not need it",
         "modprobe ib_umad");
}

// The library that drives a device in user space: kernel driver -> libibverbs provider.
void providers(Case& c) {
  const std::map<std::string, std::string> by_driver = {
      {"mlx5_core", "mlx5"}, {"mlx4_core", "mlx4"}, {"bnxt_en", "bnxt_re"}, {"ice", "irdma"}, {"efa", "efa"}};
  std::vector<std::string> installed;
  std::string looked;
  for (const char* directory :
       {"/usr/lib/x86_64-linux-gnu/libibverbs", "/usr/lib/aarch64-linux-gnu/libibverbs",
        "/usr/lib64/libibverbs", "/usr/lib/libibverbs"})
    for (const auto& name : c.names_in(directory)) {
      installed.push_back(name);
      if (!contains(looked, directory)) looked += (looked.empty() ? "" : ", ") + std::string(directory) + "/";
    }
  bool any = false;
  for (const auto& port : ports(c)) {
    std::string provider;
    if (const auto row = by_driver.find(port.driver); row != by_driver.end()) provider = row->second;
    if (!port.hardware() && starts_with(port.device, "rxe")) provider = "rxe";
    if (provider.empty()) continue;
    any = true;
    const auto found = std::find_if(installed.begin(), installed.end(), [&](const auto& name) {
      return starts_with(name, "lib" + provider + "-rdmav");
    });
    if (found != installed.end())
      c.pass(looked + " has " + *found);
    else
      c.fail(fmt::format("no lib{}-rdmav*.so in {}", provider,
                         looked.empty() ? "any of libibverbs' directories" : looked),
             "libibverbs has no driver for " + port.device + " here: programs do not see the device",
             "apt-get install ibverbs-providers (rpm: libibverbs), in the container too");
  }
  if (!any) c.not_applicable("no RDMA device whose library has a known name");
}

void module_symbols(Case& c) {
  KernelLog log(c);
  if (!log.readable()) return;
  std::vector<std::string> hits;
  for (const auto& line : log.find({"disagrees about version of symbol", "Unknown symbol"}))
    for (const char* module : {"mlx", "ib_", "rdma", "nv_peer", "nvidia", "irdma", "bnxt"})
      if (contains(line, module)) {
        hits.push_back(line);
        break;
      }
  if (hits.empty()) return c.pass(log.nothing());
  c.fail(
      log.show(hits),
      "a module did not load because it was built for another RDMA stack (the kernel's own, or MLNX_OFED's)",
      "rebuild or reinstall it after the stack; reboot");
}

void versions(Case& c) {
  const auto core = c.file("/sys/module/mlx5_core/version"), rdma = c.file("/sys/module/mlx5_ib/version");
  c.compare("mlx5_core version", std::string(trim(core.value)));
  c.compare("kernel", c.text("/proc/sys/kernel/osrelease").value_or(""));
  if (!c.directory("/sys/module/mlx5_core").found()) return c.not_applicable("no mlx5 card");
  const auto evidence = cite(core) + "; " + cite(rdma);
  if (core.found() == rdma.found() && trim(core.value) == trim(rdma.value)) return c.pass(evidence);
  if (!c.directory("/sys/module/mlx5_ib").found())
    return c.not_applicable("mlx5_ib is not loaded (see nic.devices)");
  c.warn(evidence,
         "mlx5_core and mlx5_ib are of different versions: one is the kernel's own, one MLNX_OFED's",
         "reinstall MLNX_OFED for this kernel, then reboot");
}

constexpr auto boot =
    "https://gitverse.ru/githubmirror/rdma-core/content/master/kernel-boot/rdma-ulp-modules.rules";
constexpr auto modules =
    "https://gitverse.ru/githubmirror/rdma-core/content/master/kernel-boot/modules/rdma.conf";
constexpr std::array rows = {
    Check{"services.uverbs", "Every RDMA device is open to programs (ib_uverbs)", uverbs_module,
          "'No IB devices found' although the kernel has them", "modprobe ib_uverbs", modules},
    Check{"services.rdma_ucm", "The connection manager is open to programs (rdma_ucm)", connection_manager,
          "rping, -R and UCX's rdmacm fail", "modprobe rdma_ucm", modules},
    Check{"services.rdma_link", "`rdma link show` shows every device", rdma_tool,
          "devices are missing in a container", "rdma dev set … netns",
          "https://man7.org/linux/man-pages/man8/rdma-system.8.html; Mellanox/k8s-rdma-shared-dev-plugin#84"},
    Check{"services.boot", "The units that load RDMA modules did not fail", boot_units,
          "RDMA is gone after a reboot", "systemctl restart rdma-load-modules@rdma.service", boot},
    Check{"services.openibd", "MLNX_OFED's service runs where it is installed", openibd,
          "no RDMA device after a reboot or a kernel update", "systemctl enable --now openibd",
          "https://docs.nvidia.com/networking/display/bluefielddpuosv452/system+configuration+and+services; "
          "Mellanox/doca-driver-build#51"},
    Check{"services.ibstat", "`ibstat` shows every mlx card", ibstat,
          "none in training; tools do not find the card", "modprobe ib_umad",
          "https://docs.nvidia.com/networking/display/bluefielddpuosv452/system+configuration+and+services"},
    Check{"services.provider", "libibverbs has a driver for every device", providers,
          "'couldn't load driver', 'No device found' in a container only",
          "apt-get install ibverbs-providers", "NVIDIA/nccl#1044; ofiwg/libfabric#975"},
    Check{"services.module_symbols", "No RDMA or GPU module failed to load for its symbols", module_symbols,
          "no GPUDirect, or no RDMA, after an update", "rebuild the module",
          "Mellanox/nv_peer_memory#79; Mellanox/nv_peer_memory#84"},
    Check{"services.driver_versions", "mlx5_core and mlx5_ib are of one version", versions,
          "missing features, failing ioctls", "reinstall MLNX_OFED", "openucx/ucx#6906"},
};

}  // namespace

std::span<const Check> service_checks() { return rows; }

}  // namespace beeline::doctor
