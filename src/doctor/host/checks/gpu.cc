// GPUs and their way to the cards.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "doctor/host/checks/groups.h"
#include "doctor/host/checks/kernel_log.h"
#include "doctor/host/devices.h"
#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

// Says "not applicable" unless there are NVIDIA GPUs and an RDMA card.
bool gpu_and_card(Case& c) {
  const auto all = gpus(c);
  if (std::none_of(all.begin(), all.end(), [](const Gpu& gpu) { return gpu.nvidia; })) {
    c.not_applicable("no NVIDIA GPU on the PCI bus");
    return false;
  }
  const auto every = ports(c);
  if (std::none_of(every.begin(), every.end(), [](const Port& port) { return port.hardware(); })) {
    c.not_applicable("no RDMA card");
    return false;
  }
  return true;
}

std::string open_module(Case& c) {
  const auto version = c.file("/proc/driver/nvidia/version");
  return contains(version.value, "Open Kernel Module") ? cite(version) : std::string();
}

std::optional<Reading> registered(Case& c) {
  for (const char* client : {"nvidia-peermem", "nv_mem"}) {
    auto version = c.file(std::string("/sys/kernel/mm/memory_peers/") + client + "/version");
    if (version.found()) return version;
  }
  return std::nullopt;
}

bool kernel_has_dmabuf(Case& c) {
  const auto parts = split(c.text("/proc/sys/kernel/osrelease").value_or(""), ".-");
  const auto major = parts.empty() ? 0 : number(parts[0]).value_or(0);
  const auto minor = parts.size() < 2 ? 0 : number(parts[1]).value_or(0);
  return major > 5 || (major == 5 && minor >= 12);
}

void direct_path(Case& c) {
  if (!gpu_and_card(c)) return;
  const auto peer = registered(c);
  const auto dmabuf = open_module(c);
  const bool new_enough = kernel_has_dmabuf(c);
  if (peer) return c.pass(cite(*peer));
  if (!dmabuf.empty() && new_enough)
    return c.pass("dma-buf: " + dmabuf + "; " + cite(c.file("/proc/sys/kernel/osrelease")));
  const auto version = c.file("/proc/driver/nvidia/version");
  if (!version.found())
    return c.fail(cite(version), "there are NVIDIA GPUs, but the NVIDIA driver is not loaded",
                  "modprobe nvidia; dmesg | grep -i nvrm");
  c.fail("/sys/kernel/mm/memory_peers/ has no NVIDIA client; " + cite(version) + "; " +
             cite(c.file("/proc/sys/kernel/osrelease")),
         "the cards have no way to GPU memory: no peer memory client is registered, and dma-buf needs "
         "NVIDIA's open kernel module and Linux 5.12",
         "modprobe nvidia-peermem; or install the open kernel module");
}

void peermem_registered(Case& c) {
  if (!gpu_and_card(c)) return;
  std::string loaded;
  for (const char* module : {"nvidia_peermem", "nv_peer_mem"})
    if (c.directory(std::string("/sys/module/") + module).found()) loaded = module;
  if (loaded.empty()) return c.not_applicable("neither nvidia_peermem nor nv_peer_mem is loaded");
  if (const auto peer = registered(c)) return c.pass("/sys/module/" + loaded + " is loaded; " + cite(*peer));
  const auto evidence =
      "/sys/module/" + loaded + " is loaded; /sys/kernel/mm/memory_peers/ has no NVIDIA client";
  const std::string cause = loaded +
                            " is loaded yet not registered with the RDMA core: it was built for another one "
                            "(kernel's or MLNX_OFED's)";
  const std::string fix = "reinstall the GPU driver after MLNX_OFED, so that " + loaded +
                          " is built against it; modprobe -r " + loaded + "; modprobe " + loaded;
  if (open_module(c).empty()) return c.fail(evidence, cause, fix);
  c.warn(evidence, cause + "; dma-buf remains", fix);
}

// How many PCI functions two paths share from the root on; -1 for different roots.
int shared(Case& c, const std::string& gpu, const std::vector<std::string>& card) {
  const auto chain = pci_chain(c, gpu);
  if (chain.empty() || card.empty()) return -1;
  const auto root = [](const std::string& path) {
    return path.substr(0, path.find('/', std::string_view("/sys/devices/").size()));
  };
  if (root(chain.front()) != root(card.front())) return -1;
  int count = 0;
  while (static_cast<std::size_t>(count) < std::min(chain.size(), card.size()) &&
         chain[static_cast<std::size_t>(count)] == card[static_cast<std::size_t>(count)])
    ++count;
  return count;
}

void distance(Case& c) {
  const auto all = gpus(c);
  if (all.empty()) return c.not_applicable("no GPU on the PCI bus");
  const auto cards = pci_cards(c);
  if (cards.empty()) return;
  std::string far;
  for (const auto& gpu : all) {
    const auto node = number(c.text(gpu.path + "/numa_node").value_or("-1")).value_or(-1);
    bool near = node < 0;
    for (const auto& card : cards) {
      const auto other = number(c.text(card.chain.back() + "/numa_node").value_or("-1")).value_or(-1);
      near = near || shared(c, gpu.path, card.chain) >= 0 || other < 0 || other == node;
    }
    if (!near)
      far += (far.empty() ? "" : ", ") + gpu.path.substr(gpu.path.rfind('/') + 1) +
             fmt::format(" (node {})", node);
  }
  const auto evidence = fmt::format("{} GPUs, {} cards in /sys/bus/pci/devices", all.size(), cards.size());
  if (far.empty()) return c.pass(evidence + ": each GPU has a card on its NUMA node or root complex");
  c.warn(evidence + "; without a card on their NUMA node: " + far,
         "what these GPUs send crosses the link between the sockets before it reaches a card",
         "put a card into a slot of that socket (the board's manual; `nvidia-smi topo -m`); NCCL's PXN "
         "softens it");
}

void xid(Case& c) {
  const auto all = gpus(c);
  if (std::none_of(all.begin(), all.end(), [](const Gpu& gpu) { return gpu.nvidia; }))
    return c.not_applicable("no NVIDIA GPU on the PCI bus");
  KernelLog log(c);
  if (!log.readable()) return;
  const auto hits = log.find({"NVRM: Xid"});
  if (hits.empty()) return c.pass(log.nothing());
  const auto fatal = log.find(
      {"): 48,", "): 74,", "): 79,", "): 94,", "): 95,", "): 119,", "): 120,", "fallen off the bus"});
  if (!fatal.empty())
    return c.fail(
        log.show(fatal), "a GPU failed since boot; the last message is shown",
        "compare its time with the job's; drain the host, look the code up in NVIDIA's Xid catalog");
  c.warn(log.show(hits), "the NVIDIA driver reported Xid events since boot; the last one is shown",
         "compare its time with the job's; look the code up in NVIDIA's Xid catalog");
}

void fabric_manager(Case& c) {
  bool nvswitch = false;
  for (const auto& function : c.names_in("/sys/bus/pci/devices")) {
    const auto path = "/sys/bus/pci/devices/" + function;
    nvswitch = nvswitch || (c.text(path + "/vendor") == "0x10de" &&
                            starts_with(c.text(path + "/class").value_or(""), "0x0680"));
  }
  if (!nvswitch) return c.not_applicable("no NVSwitch on the PCI bus");
  const auto state =
      c.command("systemctl show nvidia-fabricmanager.service --property=LoadState,ActiveState");
  if (!state.found()) return c.unreadable(state);
  const auto active = field(state.value, "ActiveState", '=').value_or("unknown");
  if (active == "active") return c.pass(cite(state));
  if (in_container(c)) return c.not_applicable("in a container: the host runs the fabric manager");
  c.fail(cite(state), "the host has NVSwitches, and the service that configures them is " + active,
         "systemctl enable --now nvidia-fabricmanager (its version must equal the driver's)");
}

void versions(Case& c) {
  const auto all = gpus(c);
  if (std::none_of(all.begin(), all.end(), [](const Gpu& gpu) { return gpu.nvidia; }))
    return c.not_applicable("no NVIDIA GPU on the PCI bus");
  KernelLog log(c);
  if (!log.readable()) return;
  const auto version = c.file("/proc/driver/nvidia/version");
  c.compare("NVIDIA driver", std::string(trim(version.value)).substr(0, version.value.find('\n')));
  const auto hits = log.find({"NVRM: API mismatch"});
  if (hits.empty()) return c.pass(log.nothing());
  c.fail(log.show(hits), "a program's NVIDIA library and the kernel module are of different versions",
         "reboot after a driver update; in a container use the host's libraries (NVIDIA container toolkit)");
}

constexpr std::array rows = {
    Check{"gpu.direct", "The cards can reach GPU memory (GPUDirect RDMA)", direct_path,
          "a tenth to a half of the bandwidth; NCCL's log says no GDR",
          "nvidia-peermem, or the open kernel module with dma-buf",
          "NVIDIA/nccl#897; NVIDIA/nccl#1412; NVIDIA/nccl#1676"},
    Check{"gpu.peermem", "A loaded peer memory module is registered", peermem_registered,
          "180 GB/s became 10 GB/s after an upgrade", "rebuild it against the RDMA stack in use",
          "NVIDIA/nccl#1939; Mellanox/nv_peer_memory#79; Mellanox/nv_peer_memory#84"},
    Check{"gpu.distance", "Every GPU has a card near it", distance,
          "some GPUs reach half the bandwidth of the others", "another slot",
          "NVIDIA/nccl#439; NVIDIA/nccl#246"},
    Check{"gpu.xid", "No GPU reported an error", xid,
          "a rank dies or hangs; the others report status 12 or a watchdog timeout", "drain the host",
          "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"},
    Check{"gpu.fabric_manager", "The fabric manager runs where there are NVSwitches", fabric_manager,
          "CUDA error 802: system not yet initialized", "systemctl enable --now nvidia-fabricmanager",
          "NVIDIA/nccl-tests#264"},
    Check{"gpu.driver_versions", "NVIDIA's library and kernel module agree", versions,
          "'Driver/library version mismatch'; CUDA does not start", "reboot",
          "stackhpc/ansible-slurm-appliance#287; NVIDIA/nvidia-docker#182"},
};

}  // namespace

std::span<const Check> gpu_checks() { return rows; }

}  // namespace beeline::doctor
