// Values that were once set to cure something and stayed.
#include <fmt/format.h>

#include <array>

#include "doctor/host/checks/groups.h"
#include "doctor/host/checks/nccl_env.h"
#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

void traffic_class(Case& c) {
  const auto set = nccl_variable(c, "NCCL_IB_TC");
  if (!set) return c.pass("environment: NCCL_IB_TC is not set");
  const auto value = number(set->value);
  if (!value || *value < 0 || *value > 255)
    return c.fail(set->evidence, "a traffic class is a number from 0 to 255",
                  "NCCL_IB_TC=106 stands for DSCP 26");
  c.compare("NCCL_IB_TC", set->value);
  // A DSCP written where a traffic class is meant: 26 is DSCP 6 with ECN bits set.
  if (*value % 4 == 1 || *value % 4 == 3 || *value == 26 || *value == 46)
    return c.warn(
        set->evidence,
        fmt::format("traffic class {} is DSCP {} with ECN bits {}; a DSCP is four times smaller than its "
                    "traffic class",
                    *value, *value / 4, *value % 4),
        fmt::format("if DSCP {} is meant: NCCL_IB_TC={}", *value, *value * 4 <= 255 ? *value * 4 : 106));
  c.pass(fmt::format("{} (DSCP {})", set->evidence, *value / 4));
}

void timeout(Case& c) {
  const auto set = nccl_variable(c, "NCCL_IB_TIMEOUT");
  if (!set) return c.pass("environment: NCCL_IB_TIMEOUT is not set");
  const auto value = number(set->value);
  if (!value || *value < 0 || *value > 31)
    return c.fail(set->evidence, "the timeout is a number from 1 to 31: 4.096 us times two to its power",
                  "unset NCCL_IB_TIMEOUT (20)");
  if (*value == 0)
    return c.fail(set->evidence, "0 waits for ever: a lost packet hangs the job",
                  "unset NCCL_IB_TIMEOUT (20)");
  const double seconds = 4.096e-6 * static_cast<double>(std::uint64_t{1} << static_cast<unsigned>(*value));
  const auto evidence = fmt::format("{} ({:.3g} s a try)", set->evidence, seconds);
  if (*value < 14)
    return c.warn(evidence, "retries end before a congested network answers", "NCCL_IB_TIMEOUT=20 to 22");
  if (*value > 23)
    return c.warn(evidence, "a dead peer is noticed after minutes only", "NCCL_IB_TIMEOUT=20 to 22");
  c.pass(evidence);
}

void retries(Case& c) {
  const auto set = nccl_variable(c, "NCCL_IB_RETRY_CNT");
  if (!set) return c.pass("environment: NCCL_IB_RETRY_CNT is not set");
  const auto value = number(set->value);
  if (!value || *value < 0 || *value > 7)
    return c.fail(set->evidence, "the retry count is a number from 0 to 7", "unset NCCL_IB_RETRY_CNT (7)");
  if (*value < 7)
    return c.warn(set->evidence, fmt::format("a packet is sent again {} times only", *value),
                  "unset NCCL_IB_RETRY_CNT (7)");
  c.pass(set->evidence);
}

void forced(Case& c) {
  std::string evidence;
  for (const char* name :
       {"NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_NTHREADS",
        "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_P2P_LEVEL", "NCCL_LAUNCH_MODE"}) {
    const auto set = nccl_variable(c, name);
    const bool off = set && contains(name, "DISABLE") && number(set->value).value_or(0) == 0;
    if (set && !off) evidence += (evidence.empty() ? "" : "; ") + set->evidence;
  }
  if (evidence.empty()) return c.pass("environment: none of NCCL's tuning and debugging variables is set");
  c.warn(evidence,
         "these override what NCCL measures and chooses; its manual says to remove them once a problem is "
         "solved",
         "unset them, and measure");
}

void debug_output(Case& c) {
  const auto set = nccl_variable(c, "NCCL_DEBUG");
  if (!set) return c.pass("environment: NCCL_DEBUG is not set");
  if (lower(set->value) != "trace") return c.pass(set->evidence);
  c.warn(set->evidence, "every call is logged",
         "NCCL_DEBUG=INFO shows the network's set-up, WARN the errors");
}

void gpu_direct(Case& c) {
  std::string evidence;
  for (const char* name : {"NCCL_NET_GDR_LEVEL", "NCCL_IB_CUDA_SUPPORT"}) {
    const auto set = nccl_variable(c, name);
    if (set && (lower(set->value) == "loc" || set->value == "0"))
      evidence += (evidence.empty() ? "" : "; ") + set->evidence;
  }
  if (evidence.empty()) return c.pass("environment: GPUDirect is not switched off");
  c.warn(evidence, "GPU memory goes through host memory: GPUDirect RDMA is switched off",
         "unset NCCL_NET_GDR_LEVEL NCCL_IB_CUDA_SUPPORT");
}

void version_one(Case& c) {
  const auto set = nccl_variable(c, "NCCL_IB_ROCE_VERSION_NUM");
  if (!set) return c.pass("environment: NCCL_IB_ROCE_VERSION_NUM is not set");
  if (set->value == "2") return c.pass(set->evidence);
  c.fail(set->evidence, "NCCL looks for GIDs of another RoCE version than 2",
         "unset NCCL_IB_ROCE_VERSION_NUM");
}

void address_family(Case& c) {
  const auto set = nccl_variable(c, "NCCL_IB_ADDR_FAMILY");
  if (!set) return c.pass("environment: NCCL_IB_ADDR_FAMILY is not set");
  const bool v6 = set->value == "AF_INET6";
  bool any = false, matched = false;
  for (const auto& port : selected_ports(c))
    for (const auto& gid : gids(c, port))
      if (port.roce() && gid.v2 && !gid.gid.is_link_local()) {
        any = true;
        matched = matched || gid.gid.is_v4() != v6;
      }
  if (!any) return c.not_applicable(set->evidence + "; no routable RoCE v2 GID that it applies to");
  if (matched) return c.pass(set->evidence);
  c.fail(set->evidence, "no routable RoCE v2 GID here is of that family", "unset NCCL_IB_ADDR_FAMILY");
}

void configuration_file(Case& c) {
  const auto file = c.file("/etc/nccl.conf");
  if (file.unreadable()) return c.unreadable(file);
  if (!file.found()) return c.pass("/etc/nccl.conf is not there");
  std::string overridden;
  for (const auto& line : lines_of(file.value)) {
    const auto at = line.find('=');
    if (at == std::string::npos || starts_with(trim(line), "#")) continue;
    const std::string name(trim(std::string_view(line).substr(0, at)));
    const auto set = variable(c, name);
    if (set && *set != trim(std::string_view(line).substr(at + 1)))
      overridden +=
          (overridden.empty() ? "" : "; ") + cite(file, line) + ", environment: " + name + "=" + *set;
  }
  c.compare("/etc/nccl.conf", join(lines_of(file.value), " "));
  if (overridden.empty()) return c.pass(cite(file));
  c.warn(overridden, "the environment overrides what this host's administrator set",
         "unset the variables, unless the job knows better");
}

constexpr auto env = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html";
constexpr std::array rows = {
    Check{"nccl.traffic_class", "NCCL_IB_TC is a traffic class, not a DSCP", traffic_class,
          "drops under load although PFC is configured", "NCCL_IB_TC = 4 x DSCP",
          "openucx/ucx#2434; https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"},
    Check{"nccl.timeout", "NCCL_IB_TIMEOUT is between 14 and 23", timeout,
          "status 12 under load; or minutes until a dead peer is noticed", "NCCL_IB_TIMEOUT=20 to 22", env},
    Check{"nccl.retry_count", "NCCL_IB_RETRY_CNT is 7", retries, "status 12 after the first lost packets",
          "unset NCCL_IB_RETRY_CNT", env},
    Check{"nccl.forced", "Tuning and debugging variables are not left over", forced,
          "bandwidth far below what the hardware can", "unset them", env},
    Check{"nccl.debug", "NCCL_DEBUG is not TRACE", debug_output, "slow steps, gigantic logs",
          "NCCL_DEBUG=WARN", env},
    Check{"nccl.gdr", "GPUDirect is not switched off", gpu_direct,
          "half the bandwidth; NCCL's log says no GDR", "unset NCCL_NET_GDR_LEVEL", env},
    Check{"nccl.roce_version", "NCCL looks for RoCE v2", version_one,
          "status 12 right after connecting across subnets", "unset NCCL_IB_ROCE_VERSION_NUM", env},
    Check{"nccl.addr_family", "NCCL_IB_ADDR_FAMILY fits the GIDs", address_family,
          "NCCL falls to GID index 0; status 12", "unset NCCL_IB_ADDR_FAMILY",
          "uccl-project/uccl#799; https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"},
    Check{"nccl.conf", "The environment does not override /etc/nccl.conf", configuration_file,
          "a job differs from others on the same hosts", "unset the variables", env},
};

}  // namespace

std::span<const Check> nccl_tuning_checks() { return rows; }

}  // namespace beeline::doctor
