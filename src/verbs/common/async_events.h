// Asynchronous events of one context: a readable descriptor with one unit per event, and the counters
// that destroying an object waits for (ibv_get_async_event(3)).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

namespace beeline::verbs {

// An object that events are about. An event that nobody has fetched yet is not repeated, so that the
// queue is bounded by what exists; it moves to the end, so that the last one tells how things are.
class AsyncSource {
 public:
  struct Port {
    int number = 1;
  };
  explicit AsyncSource(Port port) { template_.element.port_num = port.number; }
  explicit AsyncSource(ibv_cq* cq) { template_.element.cq = cq; }
  explicit AsyncSource(ibv_qp* qp) { template_.element.qp = qp; }
  explicit AsyncSource(ibv_srq* srq) { template_.element.srq = srq; }
  AsyncSource(const AsyncSource&) = delete;
  AsyncSource& operator=(const AsyncSource&) = delete;

 private:
  friend class AsyncEvents;
  static constexpr std::size_t max_waiting = 8;  // kinds of events that one object can have

  ibv_async_event template_{};
  std::array<ibv_event_type, max_waiting> waiting_{};  // raised, not fetched: oldest first
  std::size_t waiting_count_ = 0;
  std::uint32_t delivered_ = 0;
};

class AsyncEvents {
 public:
  // `fd` is an eventfd that counts as a semaphore.
  void use(int fd) { fd_ = fd; }

  void attach(AsyncSource& source);
  // Drops what was not fetched; how many were, since the beginning.
  std::uint32_t detach(AsyncSource& source);
  // What was fetched counts as acknowledged, in the object's own counter.
  void forgive(AsyncSource& source, pthread_mutex_t& mutex, std::uint32_t& completed);
  void raise(AsyncSource& source, ibv_event_type type);  // from any thread; does not block
  // Blocks as the application's O_NONBLOCK on the descriptor says. 0, or -1 with errno.
  int next(ibv_async_event* out);

 private:
  std::mutex lock_;
  int fd_ = -1;
  std::size_t sources_ = 0;
  // Sources with events waiting, first come first served. Its capacity follows the number of sources.
  std::vector<AsyncSource*> ready_;
};

// Counts one acknowledgement of an object, and waits for as many as were delivered.
void acknowledge_async(pthread_mutex_t& mutex, pthread_cond_t& cond, std::uint32_t& completed);
void await_async(pthread_mutex_t& mutex, pthread_cond_t& cond, const std::uint32_t& completed,
                 std::uint32_t delivered);

// Takes one unit back without ever blocking, whatever flags the application set on the descriptor.
// Where the kernel cannot (before 5.8) whoever reads the unit finds nothing and goes on.
bool take_token(int fd);

}  // namespace beeline::verbs
