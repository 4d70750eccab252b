#include <algorithm>
#include <array>

#include "doctor/host/check.h"
#include "doctor/host/checks/groups.h"

namespace beeline::doctor {

std::span<const Group> groups() {
  static constexpr std::array all = {Group{"host", "Host"},
                                     Group{"pcie", "PCI Express"},
                                     Group{"nic", "Network cards"},
                                     Group{"roce", "RoCE and quality of service"},
                                     Group{"gpu", "GPUs"},
                                     Group{"container", "Container"},
                                     Group{"path", "Network path"},
                                     Group{"services", "Services and drivers"},
                                     Group{"nccl", "NCCL and other environment"}};
  return all;
}

const std::vector<Check>& registry() {
  static const std::vector<Check> all = [] {
    std::vector<Check> rows;
    for (const auto group : {host_checks(), pcie_checks(), nic_checks(), nic_health_checks(), roce_checks(),
                             qos_checks(), gpu_checks(), container_checks(), path_checks(), service_checks(),
                             nccl_checks(), nccl_tuning_checks()})
      rows.insert(rows.end(), group.begin(), group.end());
    return rows;
  }();
  return all;
}

const Check* find_check(std::string_view id) {
  const auto& all = registry();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Check& check) { return check.id == id; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace beeline::doctor
