// The subcommands of `beeline`, one file each. Each adds itself to the parser; its
// callback throws CLI::RuntimeError to end with another status than 0.
#pragma once

#include <CLI/CLI.hpp>

#include "base/result.h"

namespace beeline::cli {

void add_devices(CLI::App& app);
void add_perf(CLI::App& app);
void add_bench(CLI::App& app);
void add_doctor(CLI::App& app);

// One clear sentence on standard error, exit status 1.
[[noreturn]] void give_up(const Error& error);

}  // namespace beeline::cli
