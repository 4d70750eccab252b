#include "preload/files/path.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string_view>

#include "preload/files/bypass.h"
#include "preload/files/next.h"
#include "preload/paths/paths.h"

namespace beeline::preload::files {
namespace {

enum class Reading : unsigned char { not_yet, under_way, done };
constinit std::atomic<Reading> reading{Reading::not_yet};
// A copy: programs overwrite their environment to show another title.
constinit char tree_text[PATH_MAX]{};
constinit std::size_t tree_length = 0;

// Without getenv: shells bring one of their own.
std::string_view variable(std::string_view name) {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (text.size() > name.size() && text[name.size()] == '=' && text.substr(0, name.size()) == name)
      return text.substr(name.size() + 1);
  }
  return {};
}

std::string_view tree() {
  if (reading.load(std::memory_order_acquire) == Reading::not_yet) read_tree_variable();
  if (reading.load(std::memory_order_acquire) != Reading::done) return {};
  return {tree_text, tree_length};
}

}  // namespace

void read_tree_variable() {
  Reading expected = Reading::not_yet;
  if (!reading.compare_exchange_strong(expected, Reading::under_way)) return;
  const std::string_view value = variable(tree_variable);
  if (value.size() < sizeof tree_text) {
    std::memcpy(tree_text, value.data(), value.size());
    tree_length = value.size();
  }
  reading.store(Reading::done, std::memory_order_release);
}

Path::Path(const char* given) : chosen_(given) {
  // Nearly every path of a process is done with after these two looks.
  if (given == nullptr || given[0] != '/' || (given[1] != 's' && given[1] != 'd')) return;
  if (Bypass::active()) return;
  if (redirect(tree(), given, redirected_)) chosen_ = redirected_;
}

char* hide_tree(char* text) {
  if (text == nullptr) return nullptr;
  const std::string_view whole(text);
  const std::string_view rest = without_tree(tree(), whole);
  std::memmove(text, rest.data(), rest.size());
  text[rest.size()] = '\0';
  return text;
}

bool means_connection_manager(const char* path) {
  if (path == nullptr || path[0] != '/' || path[1] != 'd' || !is_connection_manager(path)) return false;
  // Where the machine has a connection manager of its own, the tree links to that.
  char target[16];
  using ReadLink = ssize_t (*)(const char*, char*, std::size_t);
  const Path own(path);
  if (own == path) return false;
  const ssize_t length = reinterpret_cast<ReadLink>(next(Function::f_readlink))(own, target, sizeof target);
  return length > 0 && std::string_view(target, static_cast<std::size_t>(length)) == "/dev/null";
}

}  // namespace beeline::preload::files
