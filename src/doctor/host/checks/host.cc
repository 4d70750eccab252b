// Limits and settings of the host, read in the process that runs the doctor.
#include <fmt/format.h>

#include <array>

#include "doctor/host/checks/groups.h"
#include "doctor/host/checks/kernel_log.h"
#include "doctor/host/devices.h"
#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

// A row of /proc/self/limits: soft and hard; -1 is unlimited.
struct Limit {
  std::int64_t soft = 0, hard = 0;
  std::string line;
};

std::optional<Limit> limit(const Reading& limits, std::string_view title) {
  for (const auto& line : lines_of(limits.value)) {
    if (!starts_with(line, title)) continue;
    const auto words = split(std::string_view(line).substr(title.size()), " ");
    if (words.size() < 2) return std::nullopt;
    const auto value = [](const std::string& word) {
      return word == "unlimited" ? -1 : number(word).value_or(0);
    };
    return Limit{value(words[0]), value(words[1]), line};
  }
  return std::nullopt;
}

void memlock(Case& c) {
  const auto limits = c.file("/proc/self/limits");
  const auto found = limit(limits, "Max locked memory");
  if (!found) return c.unreadable(limits);
  c.compare("locked memory limit", std::to_string(found->soft));
  if (found->soft == -1) return c.pass(cite(limits, found->line));
  bool card = false;
  for (const auto& port : ports(c)) card = card || port.hardware();
  if (!card) return c.not_applicable("no RDMA card; bee0 locks no memory");
  const auto status = c.text("/proc/self/status").value_or("");
  const auto effective = std::strtoull(field(status, "CapEff").value_or("0").c_str(), nullptr, 16);
  constexpr unsigned ipc_lock = 14;
  if ((effective >> ipc_lock & 1U) != 0)
    return c.pass(cite(limits, found->line) + ", but this process has CAP_IPC_LOCK, which lifts it");
  const auto cause = fmt::format("a process started from here may lock {} KiB; registered memory is locked",
                                 found->soft / 1024);
  const std::string fix =
      "ulimit -l unlimited before the job; for good: '* - memlock unlimited' in "
      "/etc/security/limits.d/rdma.conf, LimitMEMLOCK=infinity in the launcher's systemd unit "
      "(slurmd, sshd), --ulimit memlock=-1 for docker";
  constexpr std::int64_t plenty = std::int64_t{64} << 30U;
  if (found->soft < plenty) return c.fail(cite(limits, found->line), cause, fix);
  c.warn(cite(limits, found->line), cause, fix);
}

void open_files(Case& c) {
  const auto limits = c.file("/proc/self/limits");
  const auto found = limit(limits, "Max open files");
  if (!found) return c.unreadable(limits);
  // NCCL raises its soft limit to the hard one, so the hard one counts.
  constexpr std::int64_t enough = 4096;
  if (found->hard == -1 || found->hard >= enough) return c.pass(cite(limits, found->line));
  c.warn(cite(limits, found->line), fmt::format("at most {} open files per process", found->hard),
         "'* hard nofile 1048576' in /etc/security/limits.d/; LimitNOFILE=1048576 in the launcher's unit");
}

void swapping(Case& c) {
  const auto memory = c.file("/proc/meminfo");
  const auto total = number(field(memory.value, "SwapTotal").value_or(""));
  const auto free = number(field(memory.value, "SwapFree").value_or(""));
  if (!total || !free) return c.unreadable(memory);
  const auto evidence = cite(memory, fmt::format("SwapTotal {} kB, SwapFree {} kB", *total, *free));
  constexpr std::int64_t noticeable_kb = 1 << 20;
  if (*total - *free < noticeable_kb) return c.pass(evidence);
  c.warn(evidence, fmt::format("{} MiB are swapped out", (*total - *free) / 1024),
         "find what takes the memory (`ps aux --sort -rss | head`), then `swapoff -a && swapon -a`");
}

void governor(Case& c) {
  const auto path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
  const auto reading = c.file(path);
  if (reading.unreadable()) return c.unreadable(reading);
  if (!reading.found())
    return c.not_applicable("the kernel does not scale this CPU's frequency (as in most virtual machines)");
  const std::string value(trim(reading.value));
  c.compare("cpu governor", value);
  if (value != "powersave" && value != "conservative") return c.pass(cite(reading));
  // intel_pstate and amd_pstate_epp call their dynamic governor powersave.
  const auto driver = c.text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver").value_or("");
  const auto preference =
      c.text("/sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference").value_or("");
  if (contains(driver, "pstate") && preference != "power")
    return c.pass(cite(reading) + " of " + driver + ", which scales with load");
  c.warn(cite(reading), "CPU 0 runs under the governor " + value + ", which favours low frequency",
         "cpupower frequency-set -g performance");
}

void numa_balancing(Case& c) {
  const auto reading = c.file("/proc/sys/kernel/numa_balancing");
  const auto nodes = c.names_in("/sys/devices/system/node");
  std::size_t count = 0;
  for (const auto& node : nodes)
    count += starts_with(node, "node") && number(node.substr(4)).has_value() ? 1 : 0;
  if (count < 2) return c.not_applicable("one NUMA node");
  if (reading.unreadable()) return c.unreadable(reading);
  if (!reading.found()) return c.not_applicable("this kernel has no NUMA balancing");
  if (gpus(c).empty()) return c.not_applicable("no GPU: nothing here is bound to NUMA nodes by NCCL or RCCL");
  if (trim(reading.value) == "0") return c.pass(cite(reading));
  c.warn(cite(reading),
         "the kernel unmaps pages to see who uses them, although training binds processes to nodes",
         "sysctl -w kernel.numa_balancing=0");
}

void time_sync(Case& c) {
  const auto reading = c.fact("clock");
  if (!reading.found()) return c.unreadable(reading);
  if (trim(reading.value) == "synchronized") return c.pass(cite(reading));
  c.warn(cite(reading),
         "the kernel's clock is not synchronized: times in this host's logs cannot be set against others'",
         "systemctl enable --now chrony (or systemd-timesyncd)");
}

void out_of_memory(Case& c) {
  KernelLog log(c);
  if (!log.readable()) return;
  const auto hits =
      log.find({"Out of memory: Killed process", "Memory cgroup out of memory: Killed process"});
  if (hits.empty()) return c.pass(log.nothing());
  c.warn(log.show(hits), "the kernel killed processes for memory since boot; the last one is shown",
         "compare its time with the job's; give the job more memory (`--mem`, `--memory`), or use fewer data "
         "loaders");
}

void hung_tasks(Case& c) {
  KernelLog log(c);
  if (!log.readable()) return;
  const auto hits =
      log.find({"blocked for more than", "watchdog: BUG: soft lockup", "rcu_sched detected stalls"});
  if (hits.empty()) return c.pass(log.nothing());
  c.warn(log.show(hits), "tasks or CPUs of this host stood still",
         "`dmesg -T | grep -A20 'blocked for more than'`: which device or file system is it");
}

constexpr std::array rows = {
    Check{"host.memlock", "Locked memory is unlimited for the process that will register it", memlock,
          "'Cannot allocate memory' or 'Couldn't allocate MR' from ibv_reg_mr or ibv_create_cq at start",
          "ulimit -l unlimited in the launcher and the container", "NVIDIA/nccl-tests#206; openucx/ucx#8229"},
    Check{"host.nofile", "Enough open files are allowed", open_files,
          "'Too many open files' when many ranks connect", "raise the hard limit nofile", "NVIDIA/nccl#550"},
    Check{"host.swap", "Little is swapped out", swapping,
          "single steps that take seconds longer, on this host only", "free memory, then swapoff and swapon",
          "https://access.redhat.com/documentation/en-us/red_hat_enterprise_linux/8/html/"
          "configuring_infiniband_and_rdma_networks/"
          "configuring-the-core-rdma-subsystem_configuring-infiniband-and-rdma-networks"},
    Check{"host.governor", "The CPU frequency governor does not favour low frequency", governor,
          "latency of small collectives varies; slower on this host than on others",
          "cpupower frequency-set -g performance",
          "https://onlinedocs.microchip.com/oxy/GUID-3C446FCE-1416-4EA6-A798-FFA31AAE007B-en-US-2/"
          "GUID-8C46BE70-A279-413D-8B21-4C32B2C107E5.html"},
    Check{"host.numa_balancing", "Automatic NUMA balancing is off on a GPU host", numa_balancing,
          "irregular slow steps", "sysctl -w kernel.numa_balancing=0",
          "https://mail-archive.com/linux-kernel@vger.kernel.org/msg462809.html"},
    Check{"host.clock", "The clock is synchronized", time_sync,
          "logs of several hosts in an impossible order", "run chrony or systemd-timesyncd",
          "public health suites check it: Azure/azurehpc-health-checks, oci-hpc, imbue cluster-health, "
          "scitix/sichek"},
    Check{"host.oom", "The kernel killed nothing for memory", out_of_memory,
          "a rank vanishes without a word; the others report 'Connection closed by remote peer' or error 12",
          "give the job more memory", "pytorch/pytorch#97191"},
    Check{"host.hung_tasks", "No task stood still for minutes", hung_tasks,
          "one rank is late, the others' watchdogs fire", "find the device or file system that it waits for",
          "pytorch/pytorch#118369"},
};

}  // namespace

std::span<const Check> host_checks() { return rows; }

}  // namespace beeline::doctor
