// Fields of a PCI function's configuration space, as sysfs gives it: 64 bytes without
// privilege, 256 or 4096 with it.
#pragma once

#include <cstdint>
#include <optional>

#include "doctor/host/evidence.h"

namespace beeline::doctor {

// Device Control of the PCI Express capability.
std::optional<unsigned> device_control(const Reading& config);
// ACS Control; nothing if the function has no ACS capability.
std::optional<unsigned> acs_control(const Reading& config);
// The same reading, as unreadable, with the privilege that is missing.
Reading refused_config(Reading config);

}  // namespace beeline::doctor
