// Who drives a communicator. Its state belongs to whoever sits in the seat, one thread at a
// time: a thread that waits for a call drives itself; when nobody waits, the progress thread does.
//
// Outlives the communicator, for the sake of those who still wait: see `driver`.
#pragma once

#include <atomic>
#include <memory>

#include "base/time.h"
#include "exec/progress/bell.h"

namespace beeline::exec {

class WorkState;

class Driver {
 public:
  virtual ~Driver() = default;
  // Only in the seat. Returns when the work is done, the deadline has passed, or the
  // communicator is to end (then its own thread ends the work).
  virtual void drive_for(const WorkState& work, TimePoint deadline) = 0;
  // Before leaving the seat: wakes the progress thread if calls are still under way.
  virtual void hand_over() = 0;
};

class Seat {
 public:
  explicit Seat(Bell bell) : bell_(std::move(bell)) {}
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  // ---- sitting down and getting up. Never waits; fails for the thread that sits already, too.

  bool try_take() {
    return !taken_.load(std::memory_order_relaxed) && !taken_.exchange(true, std::memory_order_acquire);
  }
  void leave() { taken_.store(false, std::memory_order_release); }

  // ---- whoever sits

  Driver* driver = nullptr;  // null once the communicator has ended: everything is done then

  // Around a sleep in the seat. Between them look once more for a reason to stay awake, then wait
  // until bell() is readable, among others.
  enum class Sleeper : std::uint8_t { nobody, waiter, thread };
  void falls_asleep(Sleeper who) { sleeper_.store(who); }
  void is_awake() { sleeper_.store(Sleeper::nobody); }
  const Bell& bell() const { return bell_; }

  // ---- anybody

  // Threads in Work::wait: the progress thread gets up for them.
  void begins_to_wait() { waiting_.fetch_add(1); }
  void ends_to_wait() { waiting_.fetch_sub(1); }
  bool somebody_waits() const { return waiting_.load() != 0; }

  // Wakes who sleeps in the seat, or only the progress thread if it is that.
  void ring() { ring_if(sleeper_.load() != Sleeper::nobody); }
  void ring_thread() { ring_if(sleeper_.load() == Sleeper::thread); }

 private:
  void ring_if(bool asleep) const {
    if (asleep) bell_.ring();
  }

  const Bell bell_;
  std::atomic<bool> taken_{false};
  std::atomic<int> waiting_{0};
  std::atomic<Sleeper> sleeper_{Sleeper::nobody};
};

}  // namespace beeline::exec
