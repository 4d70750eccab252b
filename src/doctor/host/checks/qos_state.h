// What an interface does with priorities, from `mlnx_qos` or, where that is missing, `dcb`.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "doctor/host/devices.h"

namespace beeline::doctor {

struct QosState {
  Reading pfc_reading;
  std::optional<std::array<bool, 8>> pfc;
  Reading trust_reading;
  std::optional<bool> trusts_dscp;
  std::array<int, 64> priority_of_dscp{};  // meaningful if it trusts DSCP

  bool any_pfc() const;
  std::string pfc_text() const;  // "3" or "none"
};

QosState qos_state(Case& c, const std::string& interface);

// The DSCP that a job's RoCE packets carry on this device, and where that is set; nothing if
// nobody set it (then it is 0).
struct MarkedDscp {
  int dscp = 0;
  std::string evidence;
};
std::optional<MarkedDscp> marked_dscp(Case& c, const Port& port);

}  // namespace beeline::doctor
