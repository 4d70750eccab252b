#include "preload/tree/owner.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "preload/paths/paths.h"

namespace beeline::preload {
namespace {

namespace fs = std::filesystem;

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> start_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  return start_in_stat(std::string(std::istreambuf_iterator<char>(file), {}));
}

}  // namespace

std::string directory_name(const Owner& owner) {
  return fmt::format("{}{}.{}.{}.XXXXXX", directory_prefix, owner.pid_namespace, owner.pid, owner.start);
}

std::optional<Owner> parse_directory_name(std::string_view name) {
  if (name.substr(0, directory_prefix.size()) != directory_prefix) return std::nullopt;
  name.remove_prefix(directory_prefix.size());
  std::array<std::string_view, 3> parts;
  for (std::string_view& part : parts) {
    const auto dot = name.find('.');
    if (dot == std::string_view::npos) return std::nullopt;
    part = name.substr(0, dot);
    name.remove_prefix(dot + 1);
  }
  const auto space = number<std::uint64_t>(parts[0]);
  const auto pid = number<int>(parts[1]);
  const auto start = number<std::uint64_t>(parts[2]);
  if (!space || !pid || *pid <= 0 || !start) return std::nullopt;
  return Owner{*space, *pid, *start};
}

std::optional<std::uint64_t> start_in_stat(std::string_view stat) {
  constexpr int start_field = 22;
  const auto name_end = stat.rfind(')');  // field 2 is the program's name, in parentheses
  if (name_end == std::string_view::npos) return std::nullopt;
  stat.remove_prefix(name_end + 1);
  for (int field = 3;; ++field) {
    const auto begin = stat.find_first_not_of(' ');
    if (begin == std::string_view::npos) return std::nullopt;
    stat.remove_prefix(begin);
    const auto end = std::min(stat.find(' '), stat.size());
    if (field == start_field) return number<std::uint64_t>(stat.substr(0, end));
    stat.remove_prefix(end);
  }
}

std::optional<Owner> this_process_as_owner() {
  struct stat space {};
  if (::stat("/proc/self/ns/pid", &space) != 0) return std::nullopt;
  const int pid = ::getpid();
  const auto start = start_of(pid);
  if (!start) return std::nullopt;
  return Owner{space.st_ino, pid, *start};
}

bool may_be_alive(const Owner& owner, const Owner& self) {
  if (owner.pid_namespace != self.pid_namespace) return true;  // we cannot see it from here
  return start_of(owner.pid) == owner.start;
}

bool has_users(std::string_view tree) {
  const std::string entry = fmt::format("{}={}", tree_variable, tree);
  const std::string self = std::to_string(::getpid());
  std::error_code error;
  for (fs::directory_iterator process("/proc", error), end; !error && process != end;
       process.increment(error)) {
    struct stat status {};
    const std::string name = process->path().filename();
    if (!number<int>(name) || name == self || ::stat(process->path().c_str(), &status) != 0 ||
        status.st_uid != ::geteuid())
      continue;
    std::ifstream environment(process->path() / "environ");
    for (std::string one; std::getline(environment, one, '\0');)
      if (one == entry) return true;
  }
  return false;
}

}  // namespace beeline::preload
