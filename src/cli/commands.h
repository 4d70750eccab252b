// The subcommands of `beeline`, one file each. Each adds itself to the parser; its
// callback throws CLI::RuntimeError to end with another status than 0.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace beeline::cli {

void add_devices(CLI::App& app);
void add_perf(CLI::App& app);
void add_bench(CLI::App& app);
void add_doctor(CLI::App& app);
// `program` as cut_off_program() took it.
void add_run(CLI::App& app, std::vector<std::string> program);
// What follows `beeline run` and its own options belongs to another program: takes it out of `argc`.
std::vector<std::string> cut_off_program(int& argc, char** argv);

// What shell programs end with when they are called wrongly.
inline constexpr int bad_use = 2;

// One clear sentence on standard error, exit status 1.
[[noreturn]] void give_up(const Error& error);

}  // namespace beeline::cli
