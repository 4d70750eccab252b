// What stands in front of what a program said: launchers, collectors and loggers add a rank, a
// host, a time, or several of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "doctor/log/stamp.h"

namespace beeline::doctor::log {

// A line taken apart. The views live as long as the line, and `storage` where it was unwrapped.
struct Line {
  std::string_view whole;
  std::string_view body;  // without what was recognised in front of it
  std::string_view rank, host, pid;
  std::string_view when;       // the first time of the line, as written
  std::optional<Stamp> front;  // the first time in the line
  Stamps inner;                // times behind another of the same clock
  Stamps stamps;
  std::uint64_t number = 0;
  bool kernel = false;       // of the kernel log
  bool cut = false;          // the log ends in the middle of it
  bool nccl = false;         // NCCL's own: "host:pid:tid [device]"
  std::uint64_t stream = 0;  // lines of the same writer have the same; of unmarked lines it is 0
};

// `storage` keeps what had to be unescaped; it must outlive the result.
Line take_apart(std::string_view text, std::uint64_t number, std::string& storage);

}  // namespace beeline::doctor::log
