// The files in which programs look for RDMA devices, as a directory tree: the kernel's sysfs and device nodes
// for the card, and links to what the machine has itself. Values are those that the verbs report.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "base/config.h"
#include "base/result.h"
#include "nic/card.h"

namespace beeline::preload {

struct TreeOptions {
  std::filesystem::path where;  // an existing directory; the tree gets one of its own in it, mode 0700
  std::filesystem::path machine = "/";  // where the machine's own sys/ and dev/ lie
  Provider provider = Provider::automatic;
};

// Lives as long as the object, or as a process that was started with it and outlives that. What is left
// behind then, or by a killed process, is swept by the next one.
class Tree {
 public:
  static Result<Tree> make(std::span<const nic::Device> devices, const TreeOptions& options);
  Tree(Tree&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Tree& operator=(Tree&&) = delete;
  ~Tree();

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit Tree(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

// Removes the trees of this user in `where` whose process is gone and that nobody uses. Returns how many.
int sweep_trees(const std::filesystem::path& where);

}  // namespace beeline::preload
