// The path that a hook passes on: the program's own, or the one in the tree.
#pragma once

#include <climits>

namespace beeline::preload::files {

class Path {
 public:
  explicit Path(const char* given);
  operator const char*() const { return chosen_; }  // NOLINT: stands for the argument that it replaces

 private:
  const char* chosen_;
  char redirected_[PATH_MAX];  // only written when it is used
};

// Takes the tree back out of what realpath() or readlink() found; in place. Returns `text`.
char* hide_tree(char* text);

// Opening this path opens the emulated connection manager.
bool means_connection_manager(const char* path);

// Reads BEELINE_RUN_TREE, once.
void read_tree_variable();

}  // namespace beeline::preload::files
