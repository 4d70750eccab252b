#include "preload/paths/paths.h"

#include <algorithm>
#include <array>

namespace beeline::preload {
namespace {

// Whole directories: nothing of the machine may be hidden by them, so the tree links what it has there.
constexpr std::array<std::string_view, 7> redirected = {
    "/sys/class/infiniband",    "/sys/class/infiniband_verbs", "/sys/class/infiniband_mad",
    "/sys/class/infiniband_cm", "/sys/class/misc/rdma_cm",     "/sys/devices/virtual/beeline",
    "/dev/infiniband",
};

// Nearly every path of a process ends here.
constexpr bool may_be_redirected(std::string_view path) {
  return path.size() >= 15 && path[0] == '/' && (path[1] == 's' || path[1] == 'd') &&
         (path.substr(1, 4) == "sys/" || path.substr(1, 4) == "dev/");
}

bool lies_in(std::string_view path, std::string_view directory) {
  return path.substr(0, directory.size()) == directory &&
         (path.size() == directory.size() || path[directory.size()] == '/');
}

}  // namespace

bool is_redirected(std::string_view path) {
  return may_be_redirected(path) && std::any_of(redirected.begin(), redirected.end(),
                                                [&](std::string_view one) { return lies_in(path, one); });
}

bool redirect(std::string_view tree, std::string_view path, std::span<char> out) {
  if (tree.empty() || !is_redirected(path) || tree.size() + path.size() + 1 > out.size()) return false;
  char* end = std::copy(tree.begin(), tree.end(), out.data());
  end = std::copy(path.begin(), path.end(), end);
  *end = '\0';
  return true;
}

std::string_view without_tree(std::string_view tree, std::string_view path) {
  if (tree.empty() || !lies_in(path, tree) || path.size() == tree.size()) return path;
  return path.substr(tree.size());
}

bool is_connection_manager(std::string_view path) { return path == "/dev/infiniband/rdma_cm"; }

}  // namespace beeline::preload
