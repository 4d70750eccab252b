// Whose tree a directory is, by its name: beeline-run.NAMESPACE.PID.START.XXXXXX. The number of a process is
// used again; with the time it was started, and the namespace that numbers are counted in, it is not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace beeline::preload {

struct Owner {
  std::uint64_t pid_namespace = 0;  // inode of /proc/self/ns/pid
  int pid = 0;
  std::uint64_t start = 0;  // clock ticks since boot: field 22 of /proc/PID/stat

  friend bool operator==(const Owner&, const Owner&) = default;
};

inline constexpr std::string_view directory_prefix = "beeline-run.";

std::string directory_name(const Owner& owner);  // for mkdtemp: with XXXXXX
std::optional<Owner> parse_directory_name(std::string_view name);
// Field 22 of the text of /proc/PID/stat, in which field 2 may hold anything.
std::optional<std::uint64_t> start_in_stat(std::string_view stat);

std::optional<Owner> this_process_as_owner();
// False only when it is certain that the process is gone.
bool may_be_alive(const Owner& owner, const Owner& self);
// Whether a process of this user, other than this one, was started with the tree in its environment: daemons
// outlive the program that they come from.
bool has_users(std::string_view tree);

}  // namespace beeline::preload
