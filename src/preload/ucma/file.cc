#include "preload/ucma/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace beeline::preload::ucma {
namespace {

int eventfd_flags(int open_flags) {
  return ((open_flags & O_CLOEXEC) != 0 ? EFD_CLOEXEC : 0) |
         ((open_flags & O_NONBLOCK) != 0 ? EFD_NONBLOCK : 0);
}

}  // namespace

// Files, sockets and pipes say what they are; what has no inode of its own (eventfd(2)) does not.
bool is_event_descriptor(int descriptor) {
  struct stat status {};
  return descriptor >= 0 && ::syscall(SYS_fstat, descriptor, &status) == 0 && (status.st_mode & S_IFMT) == 0;
}

File::File(int flags) : descriptor_(::eventfd(0, eventfd_flags(flags))) {}

void File::set_descriptor(int descriptor) {
  const std::lock_guard lock(mutex_);
  descriptor_ = descriptor;
}

// Readable while there are events. Whoever else has the descriptor (the program itself, a child after exec)
// may have taken or added units, so nothing is assumed: a write when there are none and a read when there are
// some do not block. The system calls by number: write() on this very descriptor is ours to emulate.
void File::show() {
  if (!is_event_descriptor(descriptor_)) return;
  pollfd shown{descriptor_, POLLIN, 0};
  const bool readable = ::poll(&shown, 1, 0) == 1 && (shown.revents & POLLIN) != 0;
  std::uint64_t units = 1;
  if (!events_.empty() && !readable) ::syscall(SYS_write, descriptor_, &units, sizeof units);
  if (events_.empty() && readable) ::syscall(SYS_read, descriptor_, &units, sizeof units);
}

void File::push(const QueuedEvent& event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
  show();
}

std::optional<QueuedEvent> File::pop() {
  const std::lock_guard lock(mutex_);
  std::optional<QueuedEvent> event;
  if (!events_.empty()) {
    event = events_.front();
    events_.pop_front();
  }
  show();
  return event;
}

std::deque<QueuedEvent> File::extract(const std::function<bool(const QueuedEvent&)>& chosen) {
  const std::lock_guard lock(mutex_);
  std::deque<QueuedEvent> taken, kept;
  for (QueuedEvent& event : events_) (chosen(event) ? taken : kept).push_back(event);
  events_ = std::move(kept);
  if (!taken.empty()) show();
  return taken;
}

}  // namespace beeline::preload::ucma
