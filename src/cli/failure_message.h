// What the parser refuses, as one sentence in the manner of give_up().
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace beeline::cli {

// For CLI::App::failure_message. A word in a command's place is named, and so are the commands there are.
std::string failure_message(const CLI::App* app, const CLI::Error& error);

}  // namespace beeline::cli
