#include <algorithm>

#include "doctor/log/recognise.h"
#include "doctor/log/text.h"

namespace beeline::doctor::log {
namespace {

bool is_card(std::string_view body) {
  for (const std::string_view driver :
       {"mlx5_core", "mlx4_", "bnxt_en", "irdma", "ice 0000", "i40e", "qede", "ionic", "efa"})
    if (has(body, driver)) return true;
  return false;
}

// "mlx5_core 0000:08:00.0 ens1: Link down": the network device stands before the words.
void network_device(const Line& line, std::string_view rest, Event& event) {
  std::string_view front = line.body.substr(0, line.body.size() - std::min(rest.size(), line.body.size()));
  const auto colon = front.rfind(": ");
  if (colon == front.npos) return;
  front = front.substr(0, colon);
  const auto blank = front.rfind(' ');
  const std::string_view name = blank == front.npos ? front : front.substr(blank + 1);
  const bool like =
      std::all_of(name.begin(), name.end(), [](char c) { return is_letter(c) || is_digit(c) || c == '_'; });
  event.device = like ? name : word(line.body.substr(std::min(find(line.body, "0000:"), line.body.size())));
  while (!event.device.empty() && event.device.back() == ':') event.device.pop_back();
}

bool link(const Line& line, std::string_view rest, Event& event) {
  if (!is_card(line.body)) return false;
  network_device(line, rest, event);
  return true;
}

bool health(const Line& line, std::string_view rest, Event& event) {
  network_device(line, rest, event);
  return is_card(line.body);
}

bool uncorrectable(const Line&, std::string_view, Event&) { return true; }

// 45 follows from the others, 63 and 64 only retire a row, 43 and 13 and 31 are the program's.
bool xid(const Line&, std::string_view rest, Event& event) {
  const auto colon = after(rest, "): ");
  const auto code = colon ? number(*colon) : std::nullopt;
  if (!code) return false;
  event.code = *code;
  return *code != 45 && *code != 63 && *code != 64 && *code != 92;
}

bool killed(const Line& line, std::string_view rest, Event& event) {
  if (const auto pid = number(rest)) event.pid = std::to_string(*pid);
  event.code = -9;
  return has(line.body, "out of memory") || has(line.body, "oom");
}

bool peermem(const Line& line, std::string_view, Event&) {
  return has(line.body, "Invalid argument") || has(line.body, "not found") || has(line.body, "ERROR");
}

bool always(const Line&, std::string_view, Event&) { return true; }

constexpr Recogniser table[] = {
    {"Link down", Kind::port_error, link},
    {"Link is Down", Kind::port_error, link},
    {"Link up", Kind::fact_port_up, link},
    {"Link is Up", Kind::fact_port_up, link},
    {"health compromised", Kind::device_fatal, health},
    {"Fatal error", Kind::device_fatal, health},
    {"severity=Uncorrect", Kind::pcie_error, uncorrectable},
    {"AER: Uncorrect", Kind::pcie_error, uncorrectable},
    {"NVRM: Xid", Kind::gpu_error, xid},
    {"has fallen off the bus", Kind::gpu_error, always},
    {"Killed process ", Kind::process_killed, killed},
    {"nvidia_peermem", Kind::fact_peermem, peermem},
    {"nvidia-peermem", Kind::fact_peermem, peermem},
};

}  // namespace

std::span<const Recogniser> kernel_recognisers() { return table; }

}  // namespace beeline::doctor::log
