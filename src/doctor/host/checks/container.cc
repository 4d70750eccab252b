// What a container must be given before RDMA works in it.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "doctor/host/checks/groups.h"
#include "doctor/host/devices.h"
#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

std::vector<std::string> uverbs(Case& c) {
  std::vector<std::string> names;
  for (const auto& name : c.names_in("/sys/class/infiniband_verbs"))
    if (starts_with(name, "uverbs")) names.push_back(name);
  return names;
}

void device_nodes(Case& c) {
  const auto names = uverbs(c);
  if (names.empty()) return c.not_applicable("no uverbs device in /sys/class/infiniband_verbs");
  const auto nodes = c.names_in("/dev/infiniband");
  std::string missing;
  for (const auto& name : names)
    if (std::find(nodes.begin(), nodes.end(), name) == nodes.end())
      missing += (missing.empty() ? "" : " ") + name;
  if (missing.empty()) return c.pass("/dev/infiniband/ holds " + join(names, " "));
  c.fail(fmt::format("/sys/class/infiniband_verbs/ has {}; /dev/infiniband/ lacks {}", join(names, " "),
                     missing),
         "the kernel has the devices, but programs here have no file to open for them",
         "docker run --device=/dev/infiniband …; Kubernetes: an RDMA device plugin; on a host: `udevadm "
         "trigger --subsystem-match=infiniband_verbs`");
}

void device_access(Case& c) {
  bool any = false;
  for (const auto& name : uverbs(c)) {
    const auto opened = c.fact("access /dev/infiniband/" + name);
    if (!opened.found()) continue;
    any = true;
    if (trim(opened.value) == "ok")
      c.pass("open(/dev/infiniband/" + name + "): ok");
    else
      c.fail("open(/dev/infiniband/" + name + "): " + std::string(trim(opened.value)),
             "this user may not open the device",
             "chmod 666 /dev/infiniband/uverbs*; in a container: --device, or the cgroup's device rules");
  }
  if (!any) c.not_applicable("no uverbs device node to open");
}

void cm_node(Case& c) {
  if (uverbs(c).empty()) return c.not_applicable("no uverbs device in /sys/class/infiniband_verbs");
  const auto nodes = c.names_in("/dev/infiniband");
  if (std::find(nodes.begin(), nodes.end(), "rdma_cm") != nodes.end())
    return c.pass("/dev/infiniband/rdma_cm is there");
  c.warn("/dev/infiniband/ lacks rdma_cm",
         "programs that connect by the RDMA connection manager (rping, ib_write_bw -R, UCX's rdmacm, NFS) "
         "cannot",
         "modprobe rdma_ucm on the host; docker run --device=/dev/infiniband/rdma_cm");
}

void ipc_lock(Case& c) {
  if (!in_container(c)) return c.not_applicable("not in a container");
  if (uverbs(c).empty()) return c.not_applicable("no uverbs device in /sys/class/infiniband_verbs");
  const auto status = c.file("/proc/self/status");
  const auto effective = std::strtoull(field(status.value, "CapEff").value_or("0").c_str(), nullptr, 16);
  constexpr unsigned bit = 14;
  const auto evidence = cite(status, "CapEff: " + field(status.value, "CapEff").value_or("?"));
  if ((effective >> bit & 1U) != 0) return c.pass(evidence);
  const auto limits = c.file("/proc/self/limits");
  for (const auto& line : lines_of(limits.value))
    if (starts_with(line, "Max locked memory") && contains(line, "unlimited"))
      return c.pass(evidence + "; " + cite(limits, line));
  c.fail(evidence,
         "the container has neither CAP_IPC_LOCK nor unlimited locked memory: registering memory fails",
         "docker run --cap-add=IPC_LOCK --ulimit memlock=-1; Kubernetes: securityContext.capabilities.add: "
         "[IPC_LOCK]");
}

void namespace_mode(Case& c) {
  if (rdma_devices(c).empty() && !in_container(c)) return c.not_applicable("no RDMA device");
  const auto mode = c.command("rdma system show");
  if (!mode.found()) {
    if (mode.unreadable()) return c.unreadable(mode);
    return c.not_applicable("`rdma system show` has no answer: " + mode.why);
  }
  c.compare("rdma netns mode", contains(mode.value, "netns exclusive") ? "exclusive" : "shared");
  if (!contains(mode.value, "netns exclusive")) return c.pass(cite(mode));
  const auto links = c.command("rdma link show");
  if (!in_container(c) || !trim(links.value).empty())
    return c.pass(cite(mode) + "; devices are visible here");
  c.fail(cite(mode) + "; `rdma link show` shows nothing",
         "RDMA devices belong to one network namespace each in this mode, and none belongs to this one",
         "on the host: rdma dev set DEVICE netns NAMESPACE; or rdma system set netns shared, before any "
         "namespace exists");
}

void gid_address(Case& c) {
  const auto here = addresses(c);
  bool any = false;
  const auto active = active_roce_ports(c);
  for (const auto& port : active)
    for (const auto& gid : gids(c, port)) {
      if (gid.gid.is_link_local() || (gid.type_known && !gid.v2)) continue;
      any = true;
      const auto ip = to_string(gid.gid);
      const auto evidence = fmt::format("{}/gids/{} = {} ({})", port.path, gid.index, gid.text, ip);
      if (std::any_of(here.begin(), here.end(), [&](const Address& address) { return address.ip == ip; }))
        c.pass(evidence + ", and the address is here");
      else
        c.fail(evidence + "; getifaddrs() does not list it",
               fmt::format("GID {} of {} belongs to an address of another network namespace: connections "
                           "from it are set up and carry nothing",
                           gid.index, port.device),
               "use the host's network (--network=host, hostNetwork: true), or move the interface into the "
               "container with its device (SR-IOV CNI, macvlan)");
    }
  if (!any && !active.empty()) c.not_applicable("no routable RoCE v2 GID (see roce.gid_routable)");
}

void shared_memory(Case& c) {
  const auto reading = c.fact("shm");
  const auto size = number(field(reading.value, "size_bytes", '=').value_or(""));
  if (!reading.found())
    return c.warn("statvfs(/dev/shm) fails", "there is no /dev/shm: NCCL and PyTorch's data loaders need it",
                  "mount -t tmpfs tmpfs /dev/shm");
  // "size_bytes=N free_bytes=M": field() stops at the first '='.
  const auto free_at = reading.value.find("free_bytes=");
  const auto free =
      free_at == std::string::npos ? size : number(std::string_view(reading.value).substr(free_at + 11));
  if (!size || !free) return c.unreadable(reading);
  const auto evidence = fmt::format("statvfs(/dev/shm): {} MiB, {} MiB free", *size >> 20, *free >> 20);
  constexpr std::int64_t enough = std::int64_t{512} << 20U;
  const std::string fix =
      "docker run --shm-size=16g (or --ipc=host); Kubernetes: an emptyDir with medium: Memory on /dev/shm; "
      "remove stale /dev/shm/nccl-*";
  if (*free < (std::int64_t{64} << 20U))
    return c.fail(evidence, "too little shared memory for one NCCL communicator or data loader", fix);
  if (*size < enough) return c.warn(evidence, "little shared memory (docker's default is 64 MiB)", fix);
  c.pass(evidence);
}

void rdma_cgroup(Case& c) {
  if (rdma_devices(c).empty()) return c.not_applicable("no RDMA device");
  const auto group = c.text("/proc/self/cgroup").value_or("");
  const auto at = group.find("0::");
  const std::string path =
      at == std::string::npos
          ? "/"
          : std::string(trim(std::string_view(group).substr(at + 3, group.find('\n', at) - at - 3)));
  const auto most = c.file("/sys/fs/cgroup" + (path == "/" ? "" : path) + "/rdma.max");
  if (most.unreadable()) return c.unreadable(most);
  if (!most.found()) return c.not_applicable("this control group limits no RDMA resources");
  for (const auto& line : lines_of(most.value))
    for (const auto& word : split(line, " "))
      if (starts_with(word, "hca_object=") || starts_with(word, "hca_handle=")) {
        const auto value = number(std::string_view(word).substr(11));
        if (value && *value < 1000 && word[4] == 'o')
          c.warn(cite(most, line),
                 fmt::format("this control group may have {} RDMA objects (queue pairs, regions, queues)",
                             *value),
                 "raise rdma.max of the group, or remove the limit");
        else
          c.pass(cite(most, line));
      }
  c.pass(cite(most));
}

constexpr std::array rows = {
    Check{"container.device_nodes", "Every uverbs device has its node in /dev/infiniband", device_nodes,
          "'No device found' or 'Failed to get IB devices list' in a container only",
          "--device=/dev/infiniband", "NVIDIA/nccl#451; eth-cscs/sarus#19"},
    Check{"container.device_access", "This user may open the device nodes", device_access,
          "'Permission denied' on opening the device, then sockets", "mode 666 by udev",
          "NVIDIA/nccl#2428; NVIDIA/nccl#451"},
    Check{"container.rdma_cm", "The connection manager's node is there", cm_node,
          "rdma_create_event_channel fails; -R and rping do not work", "modprobe rdma_ucm",
          "https://gitverse.ru/githubmirror/rdma-core/content/master/kernel-boot/modules/rdma.conf"},
    Check{"container.ipc_lock", "The container may lock memory", ipc_lock,
          "'Cannot allocate memory' from ibv_reg_mr", "--cap-add=IPC_LOCK",
          "NVIDIA/nccl-tests#206; openucx/ucx#8229"},
    Check{"container.netns_mode", "RDMA devices are visible in this network namespace", namespace_mode,
          "no device in a pod although the host has them", "rdma system set netns shared",
          "Mellanox/k8s-rdma-shared-dev-plugin#84; https://man7.org/linux/man-pages/man8/rdma-system.8.html"},
    Check{"container.gid_address", "The GIDs' addresses exist in this network namespace", gid_address,
          "the handshake passes, zero bytes arrive; all-zero GIDs", "--network=host",
          "projectcalico/calico#8482; lium 1202"},
    Check{"container.shm", "/dev/shm is large enough", shared_memory,
          "'No space left on device' from NCCL's shm; data loaders killed by SIGBUS", "--shm-size",
          "NVIDIA/nccl#342; NVIDIA/nccl#290"},
    Check{"container.rdma_cgroup", "The control group does not limit RDMA resources tightly", rdma_cgroup,
          "'Cannot allocate memory' or EAGAIN with many queue pairs", "raise rdma.max",
          "https://docs.kernel.org/admin-guide/cgroup-v1/rdma.html"},
};

}  // namespace

std::span<const Check> container_checks() { return rows; }

}  // namespace beeline::doctor
