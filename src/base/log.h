// The log: one named logger on standard error, quiet unless something is wrong.
#pragma once

#include <spdlog/spdlog.h>

#include <memory>
#include <string_view>

namespace beeline {

// spdlog keeps named loggers in its own registry; ours is "beeline".
std::shared_ptr<spdlog::logger> logger();

// trace, debug, info, warning, error or off. False when the word is none of these.
bool set_log_level(std::string_view level);

}  // namespace beeline
