#include "preload/files/process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "preload/files/next.h"
#include "preload/files/path.h"

namespace beeline::preload::files {
namespace {

constinit std::atomic<pid_t> home{0};  // 0: constructors have not run, so nobody has forked

void note_process() { home.store(::getpid(), std::memory_order_relaxed); }

// As early as can be: later, signal handlers may call what is hooked, and dlsym is not for them.
[[gnu::constructor(101)]] void start() {
  look_up_all();
  read_tree_variable();
  note_process();
  ::pthread_atfork(nullptr, nullptr, note_process);
}

}  // namespace

bool is_home_process() {
  const pid_t pid = home.load(std::memory_order_relaxed);
  return pid == 0 || pid == ::getpid();
}

}  // namespace beeline::preload::files
