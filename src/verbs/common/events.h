// Completion events: the channel an application sleeps on, and the completion queues
// that report to it. One readable unit of the channel's descriptor per event.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <mutex>
#include <vector>

namespace beeline::verbs {

class EventChannel;
static_assert(sizeof(ibv_cq) == 128 && offsetof(ibv_cq_ex, comp_mask) == sizeof(ibv_cq));

// A completion queue as the application sees it. Providers derive from it. What follows struct ibv_cq
// makes it a struct ibv_cq_ex, which begins with the same 128 bytes (ibv_cq_ex_to_cq).
struct EventedCq : ibv_cq {
  alignas(void*) std::byte extension[sizeof(ibv_cq_ex) - sizeof(ibv_cq)] = {};

  EventedCq();
  ~EventedCq();
  EventedCq(const EventedCq&) = delete;
  EventedCq& operator=(const EventedCq&) = delete;

  ibv_cq_ex* extended() { return reinterpret_cast<ibv_cq_ex*>(static_cast<ibv_cq*>(this)); }

  unsigned waiting = 0;    // events raised, not fetched yet   \ guarded by the
  unsigned delivered = 0;  // events fetched by get_cq_event   / channel's lock
};

class EventChannel : public ibv_comp_channel {
 public:
  explicit EventChannel(ibv_context* owner);
  ~EventChannel();
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  bool open();  // false with errno set when descriptors have run out

  void attach(EventedCq* cq);
  // Drops what was not fetched, then waits until all that was fetched is acknowledged.
  void detach(EventedCq* cq);
  bool attached() const;
  // What was fetched counts as acknowledged.
  void forgive(EventedCq* cq);

  void raise(EventedCq* cq);  // from any thread; does not block
  // Blocks as the application's O_NONBLOCK on the descriptor says. 0, or -1 with errno.
  int next(ibv_cq** cq, void** cq_context);

 private:
  mutable std::mutex lock_;
  int fd_ = -1;  // what the application sees as `fd`
  // Queues with events waiting, first come first served; its capacity follows the
  // number of queues attached, so raising never allocates.
  std::vector<EventedCq*> ready_;
};

// ibv_ack_cq_events
void acknowledge(ibv_cq* cq, unsigned count);

}  // namespace beeline::verbs
