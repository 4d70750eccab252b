// Runs another program to read what it prints.
#pragma once

#include <string>
#include <vector>

#include "base/time.h"

namespace beeline::doctor {

struct Printed {
  bool installed = true;
  bool in_time = true;
  int status = 0;  // exit status; 128 + signal when killed
  std::string out;
  std::string err;
};

// No shell; the program is searched in the system's own directories, never in $PATH; its
// environment is empty but for LC_ALL=C. It is killed, with its children, at the deadline or
// when it has printed too much.
Printed run_command(const std::vector<std::string>& words, Duration deadline, std::size_t most_bytes);

}  // namespace beeline::doctor
