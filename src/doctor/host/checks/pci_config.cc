#include "doctor/host/checks/pci_config.h"

namespace beeline::doctor {
namespace {

unsigned byte_at(const std::string& space, std::size_t offset) {
  return offset < space.size() ? static_cast<unsigned char>(space[offset]) : 0U;
}

unsigned word_at(const std::string& space, std::size_t offset) {
  return byte_at(space, offset) | byte_at(space, offset + 1) << 8U;
}

}  // namespace

std::optional<unsigned> device_control(const Reading& config) {
  constexpr unsigned pci_express = 0x10;
  if (!config.found() || config.value.size() < 256) return std::nullopt;
  std::size_t offset = byte_at(config.value, 0x34) & 0xFCU;
  for (int steps = 0; steps < 48 && offset >= 0x40; ++steps) {  // a broken list must not hold us
    if (byte_at(config.value, offset) == pci_express) return word_at(config.value, offset + 8);
    offset = byte_at(config.value, offset + 1) & 0xFCU;
  }
  return std::nullopt;
}

std::optional<unsigned> acs_control(const Reading& config) {
  constexpr unsigned access_control_services = 0x000D;
  if (!config.found() || config.value.size() < 4096) return std::nullopt;
  std::size_t offset = 0x100;
  for (int steps = 0; steps < 960 && offset >= 0x100; ++steps) {
    if (word_at(config.value, offset) == access_control_services) return word_at(config.value, offset + 6);
    offset = word_at(config.value, offset + 2) >> 4U & 0xFFCU;
  }
  return std::nullopt;
}

Reading refused_config(Reading config) {
  config.access = Access::unreadable;
  config.why =
      "only its first " + std::to_string(config.value.size()) + " bytes without CAP_SYS_ADMIN (run as root)";
  config.value.clear();
  return config;
}

}  // namespace beeline::doctor
