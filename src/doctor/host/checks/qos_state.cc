#include "doctor/host/checks/qos_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

// "PFC configuration:\n priority 0 1 …\n enabled 0 0 0 1 …"
std::optional<std::array<bool, 8>> pfc_of_mlnx_qos(const std::string& output) {
  const auto at = output.find("PFC configuration");
  if (at == std::string::npos) return std::nullopt;
  for (const auto& line : lines_of(std::string_view(output).substr(at))) {
    const auto words = split(line, " \t");
    if (words.size() != 9 || words.front() != "enabled") continue;
    std::array<bool, 8> on{};
    for (std::size_t i = 0; i < 8; ++i) on[i] = words[i + 1] == "1";
    return on;
  }
  return std::nullopt;
}

// "prio:3 dscp:31,30,…,24," several lines a priority
void map_of_mlnx_qos(const std::string& output, std::array<int, 64>& map) {
  for (const auto& line : lines_of(output)) {
    const auto words = split(line, " \t");
    if (words.size() != 2 || !starts_with(words[0], "prio:") || !starts_with(words[1], "dscp:")) continue;
    const auto priority = number(words[0].substr(5));
    for (const auto& dscp : split(words[1].substr(5), ","))
      if (const auto value = number(dscp); value && *value >= 0 && *value < 64 && priority)
        map[static_cast<std::size_t>(*value)] = static_cast<int>(*priority);
  }
}

// "prio-pfc 0:off 1:off …"
std::optional<std::array<bool, 8>> pfc_of_dcb(const std::string& output) {
  for (const auto& line : lines_of(output)) {
    const auto words = split(line, " \t");
    if (words.size() != 9 || words.front() != "prio-pfc") continue;
    std::array<bool, 8> on{};
    for (std::size_t i = 0; i < 8; ++i) on[i] = words[i + 1].substr(2) == "on";
    return on;
  }
  return std::nullopt;
}

// "dscp-prio 24:3 26:3": the kernel trusts DSCP as soon as one such rule is there.
void trust_of_dcb(QosState& state) {
  state.trusts_dscp = false;
  for (const auto& line : lines_of(state.trust_reading.value)) {
    const auto words = split(line, " \t");
    if (words.size() < 2 || words.front() != "dscp-prio") continue;
    state.trusts_dscp = true;
    for (std::size_t i = 1; i < words.size(); ++i) {
      const auto rule = split(words[i], ":");
      const auto dscp = number(rule.front()), priority = rule.size() == 2 ? number(rule[1]) : std::nullopt;
      if (dscp && priority && *dscp >= 0 && *dscp < 64)
        state.priority_of_dscp[static_cast<std::size_t>(*dscp)] = static_cast<int>(*priority);
    }
  }
}

}  // namespace

bool QosState::any_pfc() const { return pfc && std::find(pfc->begin(), pfc->end(), true) != pfc->end(); }

std::string QosState::pfc_text() const {
  std::string text;
  for (std::size_t i = 0; pfc && i < pfc->size(); ++i)
    if ((*pfc)[i]) text += (text.empty() ? "" : ",") + std::to_string(i);
  return text.empty() ? "none" : text;
}

QosState qos_state(Case& c, const std::string& interface) {
  QosState state;
  const auto vendor = c.command("mlnx_qos -i " + interface);
  if (vendor.found() && contains(vendor.value, "PFC configuration")) {
    state.pfc_reading = state.trust_reading = vendor;
    state.pfc = pfc_of_mlnx_qos(vendor.value);
    if (const auto trust = field(vendor.value, "Priority trust state")) state.trusts_dscp = *trust == "dscp";
    map_of_mlnx_qos(vendor.value, state.priority_of_dscp);
    return state;
  }
  state.pfc_reading = c.command("dcb pfc show dev " + interface);
  if (state.pfc_reading.found()) state.pfc = pfc_of_dcb(state.pfc_reading.value);
  state.trust_reading = c.command("dcb -N app show dev " + interface);
  if (state.trust_reading.found()) trust_of_dcb(state);
  return state;
}

std::optional<MarkedDscp> marked_dscp(Case& c, const Port& port) {
  if (const auto set = variable(c, "NCCL_IB_TC"))
    if (const auto value = number(*set); value && *value >= 0 && *value <= 255)
      return MarkedDscp{static_cast<int>(*value / 4), "environment: NCCL_IB_TC=" + *set};
  const auto forced =
      c.file(fmt::format("/sys/class/infiniband/{}/tc/{}/traffic_class", port.device, port.number));
  // "Global tclass=106"
  if (const auto at = forced.value.find("Global tclass="); at != std::string::npos)
    if (const auto value = number(forced.value.substr(at + 14)); value && *value > 0 && *value <= 255)
      return MarkedDscp{static_cast<int>(*value / 4), cite(forced)};
  const auto tos = c.file(
      fmt::format("/sys/kernel/config/rdma_cm/{}/ports/{}/default_roce_tos", port.device, port.number));
  if (const auto value = number(tos.value); value && *value > 0 && *value <= 255)
    return MarkedDscp{static_cast<int>(*value / 4), cite(tos) + " (rdma_cm connections)"};
  return std::nullopt;
}

}  // namespace beeline::doctor
