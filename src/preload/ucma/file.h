// An open /dev/infiniband/rdma_cm: a queue of events behind a real descriptor, an eventfd that is readable
// while there are any, so that programs may poll it as they please.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

namespace beeline::preload::ucma {

struct QueuedEvent {
  std::uint32_t counted_on = 0;  // identifier whose `events_reported` grows when it is taken
  rdma_ucm_event_resp response{};
};

// False once the descriptor was closed or replaced without our functions (by a system call of the program's
// own, or inside libc, as fclose does), at least where it is no descriptor without a file by now.
bool is_event_descriptor(int descriptor);

// Thread-safe. The descriptor is whoever made it's to close.
class File {
 public:
  // Makes the descriptor; negative when the system has none. `flags` as for open().
  explicit File(int flags);
  int first_descriptor() const { return descriptor_; }
  bool valid() const { return descriptor_ >= 0; }
  // The descriptor by which the file is known has changed, or there is none any more (-1).
  void set_descriptor(int descriptor);

  void push(const QueuedEvent& event);
  std::optional<QueuedEvent> pop();
  // Takes out all events of which `chosen` is true, in order.
  std::deque<QueuedEvent> extract(const std::function<bool(const QueuedEvent&)>& chosen);

  bool closed = false;  // no more identifiers; under the lock of its host

 private:
  void show();

  std::mutex mutex_;
  int descriptor_;
  std::deque<QueuedEvent> events_;
};

}  // namespace beeline::preload::ucma
