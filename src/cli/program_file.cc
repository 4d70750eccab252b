#include "cli/program_file.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>

namespace beeline::cli {
namespace {

namespace fs = std::filesystem;
using State = ProgramFile::State;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// The first executable file of that name; one that is not executable when there is no other.
ProgramFile find(const std::string& name, std::string_view search_path) {
  ProgramFile found;
  found.why = fmt::format("{}: there is no such program", name);
  const auto consider = [&](const fs::path& path) {
    if (!is_file(path)) return;
    const bool runnable = ::access(path.c_str(), X_OK) == 0;
    if (!runnable && found.state != State::not_found) return;
    found = {runnable ? State::runnable : State::not_executable, path, {}};
    if (!runnable) found.why = fmt::format("{} may not be executed", path.string());
  };
  if (name.find('/') != std::string::npos) {
    consider(name);
    if (found.state == State::not_found && fs::is_directory(name))
      found = {State::not_executable, name, fmt::format("{} is a directory", name)};
    return found;
  }
  while (!name.empty() && found.state != State::runnable) {
    const auto colon = search_path.find(':');
    const std::string_view directory = search_path.substr(0, colon);
    consider(fs::path(directory.empty() ? "." : directory) / name);
    if (colon == std::string_view::npos) break;
    search_path.remove_prefix(colon + 1);
  }
  return found;
}

// The linker drops LD_PRELOAD where the program gets more rights than its caller has (ld.so(8)).
std::string gains_rights(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  const bool setuid = (status.st_mode & S_ISUID) != 0 && status.st_uid != ::geteuid();
  const bool setgid =
      (status.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && status.st_gid != ::getegid();
  if (setuid || setgid)
    return fmt::format("{} is a set-{}-ID program: nothing can be preloaded into it", path.string(),
                       setuid ? "user" : "group");
  if (::getuid() != 0 && ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0)
    return fmt::format("{} has file capabilities: nothing can be preloaded into it", path.string());
  return {};
}

template <class T>
bool read_at(std::ifstream& file, std::uint64_t offset, T& out) {
  file.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(&out), sizeof out));
}

// Field by field what an ELF file's headers say about who loads it (elf(5)).
std::string cannot_be_loaded(std::ifstream& file, const fs::path& path) {
  Elf64_Ehdr header{};
  Elf64_Ehdr ours{};
  std::ifstream self("/proc/self/exe", std::ios::binary);
  if (!read_at(file, 0, header.e_ident) || !read_at(self, 0, ours)) return {};
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || !read_at(file, 0, header) ||
      header.e_machine != ours.e_machine)
    return fmt::format(
        "{} is built for another processor than this beeline: nothing can be preloaded into it",
        path.string());
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    if (!read_at(file, header.e_phoff + std::uint64_t{i} * header.e_phentsize, part)) return {};
    if (part.p_type != PT_INTERP) continue;
    std::array<char, 256> loader{};
    file.seekg(static_cast<std::streamoff>(part.p_offset));
    file.read(loader.data(),
              static_cast<std::streamsize>(std::min<std::uint64_t>(part.p_filesz, loader.size() - 1)));
    if (std::strstr(loader.data(), "ld-musl") != nullptr)
      return fmt::format("{} is built for musl: a library built for glibc cannot be preloaded into it",
                         path.string());
    return {};
  }
  return fmt::format("{} is statically linked: nothing can be preloaded into it", path.string());
}

// Empty where preloading works.
std::string why_not_preload(const fs::path& path, int scripts_left) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 4> magic{};
  if (!file.read(magic.data(), magic.size())) return gains_rights(path);
  if (std::memcmp(magic.data(), ELFMAG, SELFMAG) == 0) {
    std::string why = gains_rights(path);
    return why.empty() ? cannot_be_loaded(file, path) : why;
  }
  if (magic[0] != '#' || magic[1] != '!' || scripts_left == 0)
    return {};  // a script of the shell, or nonsense
  file.clear();
  file.seekg(2);
  std::string line;
  std::getline(file, line);
  const auto begin = line.find_first_not_of(" \t");
  if (begin == std::string::npos) return {};
  return why_not_preload(line.substr(begin, line.find_first_of(" \t", begin) - begin), scripts_left - 1);
}

}  // namespace

ProgramFile look_at_program(const std::string& name, std::string_view search_path) {
  ProgramFile program = find(name, search_path);
  if (program.state != State::runnable) return program;
  constexpr int kernel_follows = 4;  // scripts that name scripts (execve(2))
  program.why = why_not_preload(program.path, kernel_follows);
  if (!program.why.empty()) program.state = State::cannot_preload;
  return program;
}

}  // namespace beeline::cli
