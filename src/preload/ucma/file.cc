#include "preload/ucma/file.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace beeline::preload::ucma {
namespace {

int eventfd_flags(int open_flags) {
  return EFD_SEMAPHORE | ((open_flags & O_CLOEXEC) != 0 ? EFD_CLOEXEC : 0) |
         ((open_flags & O_NONBLOCK) != 0 ? EFD_NONBLOCK : 0);
}

}  // namespace

File::File(int flags) : descriptor_(::eventfd(0, eventfd_flags(flags))) {}

void File::set_descriptor(int descriptor) {
  const std::lock_guard lock(mutex_);
  descriptor_ = descriptor;
}

// The system calls by number: write() on this very descriptor is ours to emulate.
void File::add_unit() {
  const std::uint64_t one = 1;
  if (descriptor_ >= 0) ::syscall(SYS_write, descriptor_, &one, sizeof one);
}

// Never blocks: there is a unit for every event.
void File::take_unit() {
  std::uint64_t one = 0;
  if (descriptor_ >= 0) ::syscall(SYS_read, descriptor_, &one, sizeof one);
}

void File::push(const QueuedEvent& event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
  add_unit();
}

std::optional<QueuedEvent> File::pop() {
  const std::lock_guard lock(mutex_);
  if (events_.empty()) return std::nullopt;
  QueuedEvent event = events_.front();
  events_.pop_front();
  take_unit();
  return event;
}

std::deque<QueuedEvent> File::extract(const std::function<bool(const QueuedEvent&)>& chosen) {
  const std::lock_guard lock(mutex_);
  std::deque<QueuedEvent> taken, kept;
  for (QueuedEvent& event : events_) (chosen(event) ? taken : kept).push_back(event);
  for (std::size_t i = 0; i < taken.size(); ++i) take_unit();
  events_ = std::move(kept);
  return taken;
}

}  // namespace beeline::preload::ucma
