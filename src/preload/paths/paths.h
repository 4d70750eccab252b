// Which paths mean the card's files. `beeline run` makes a directory that looks like / to programs that look
// for RDMA devices: below it lie sys/class/infiniband, dev/infiniband and so on, with the card's devices
// and, as links, the machine's own (preload/tree). Pure: no system call, no allocation.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace beeline::preload {

// The environment variable that names the directory.
inline constexpr std::string_view tree_variable = "BEELINE_RUN_TREE";

// True where `path` lies at or below one of the directories that the tree has instead.
bool is_redirected(std::string_view path);

// Writes tree + path and a terminating zero; false when it is not redirected or does not fit.
bool redirect(std::string_view tree, std::string_view path, std::span<char> out);

// The path as programs know it: what comes out of realpath() must not show the tree.
std::string_view without_tree(std::string_view tree, std::string_view path);

// The emulated device of the connection manager.
bool is_connection_manager(std::string_view path);

}  // namespace beeline::preload
