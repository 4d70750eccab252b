// The rows that each group adds to the registry.
#pragma once

#include <span>

#include "doctor/host/check.h"

namespace beeline::doctor {

std::span<const Check> host_checks();
std::span<const Check> pcie_checks();
std::span<const Check> nic_checks();
std::span<const Check> nic_health_checks();
std::span<const Check> roce_checks();
std::span<const Check> qos_checks();
std::span<const Check> gpu_checks();
std::span<const Check> container_checks();
std::span<const Check> path_checks();
std::span<const Check> service_checks();
std::span<const Check> nccl_checks();
std::span<const Check> nccl_tuning_checks();

}  // namespace beeline::doctor
