// The six tests, as a table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace beeline::perf {

enum class Operation : std::uint8_t { write, read, send };

struct Test {
  std::string_view name;   // of the subcommand
  std::string_view title;  // as perftest heads its output
  std::string_view help;
  Operation operation;
  bool latency;
};

std::span<const Test> all_tests();
const Test* find_test(std::string_view name);  // null when there is none

}  // namespace beeline::perf
