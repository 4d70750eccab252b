#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include <mutex>
#include <string>

namespace beeline {

std::shared_ptr<spdlog::logger> logger() {
  static std::mutex creating;
  if (auto existing = spdlog::get("beeline")) return existing;
  const std::lock_guard lock(creating);
  if (auto existing = spdlog::get("beeline")) return existing;
  auto created = spdlog::stderr_logger_mt("beeline");
  created->set_pattern("beeline[%P] %l: %v");
  created->set_level(spdlog::level::warn);
  return created;
}

bool set_log_level(std::string_view level) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") return false;
  logger()->set_level(parsed);
  return true;
}

}  // namespace beeline
