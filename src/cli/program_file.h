// Which file a program's name means, and whether a library can be preloaded into it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace beeline::cli {

struct ProgramFile {
  enum class State : unsigned char { runnable, not_found, not_executable, cannot_preload };
  State state = State::not_found;
  std::filesystem::path path;
  std::string why;  // a sentence, unless runnable
};

// As execvp looks: in the directories of `search_path` unless the name has a slash. A script counts as its
// interpreter.
ProgramFile look_at_program(const std::string& name, std::string_view search_path);

}  // namespace beeline::cli
