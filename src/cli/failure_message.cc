#include "cli/failure_message.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "base/nearest.h"

namespace beeline::cli {
namespace {

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::string in_place_of_a_command(const std::string& path, const std::string& word,
                                  const std::vector<std::string>& commands) {
  const std::vector<std::string_view> names(commands.begin(), commands.end());
  return fmt::format("{} has no command '{}'; there are: {}{}", path, word, fmt::join(names, ", "),
                     did_you_mean(word, names));
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
  const auto words = command->remaining();
  if (const auto commands = commands_of(*command); !commands.empty())
    what = words.empty() ? fmt::format("{} takes a command: {}", path, fmt::join(commands, ", "))
                         : in_place_of_a_command(path, words.front(), commands);
  else if (!words.empty() && error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError))
    what = fmt::format("not expected: {}", fmt::join(words, " "));  // CLI11 would turn their order round
  return fmt::format("beeline: {} (see {} --help)\n", what, path);
}

}  // namespace beeline::cli
