#include "cli/failure_message.h"

#include <fmt/format.h>

#include <string_view>

namespace beeline::cli {
namespace {

std::string commands_of(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names += (names.empty() ? "" : ", ") + command->get_name();
  return names;
}

}  // namespace

std::string failure_message(const CLI::App* app, const CLI::Error& error) {
  std::string path = app->get_name();
  const CLI::App* command = app;  // the innermost that was given
  for (auto given = command->get_subcommands(); !given.empty(); given = command->get_subcommands()) {
    command = given.front();
    path += " " + command->get_name();
  }
  std::string what = error.what();
  if (const std::string commands = commands_of(*command); !commands.empty()) {
    const auto words = command->remaining();
    what = words.empty()
               ? fmt::format("{} takes a command: {}", path, commands)
               : fmt::format("{} has no command '{}'; there are: {}", path, words.front(), commands);
  }
  return fmt::format("beeline: {} (see {} --help)\n", what, path);
}

}  // namespace beeline::cli
