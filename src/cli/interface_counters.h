// What the kernel counts about an interface of this network namespace. Asked by netlink, for /sys may show
// another namespace: that in which it was mounted (`unshare -n` alone does not mount it anew).
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace beeline::cli {

// By the names that /sys/class/net/NAME/statistics has; empty where there is no such interface, or no answer.
std::map<std::string, std::uint64_t> interface_counters(const std::string& name);

}  // namespace beeline::cli
