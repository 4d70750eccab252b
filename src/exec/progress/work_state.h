// The outcome of one call, shared between its caller and whoever drives the communicator.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "exec/communicator.h"
#include "exec/progress/seat.h"

namespace beeline::exec {

class WorkState final : public Work {
 public:
  explicit WorkState(std::shared_ptr<Seat> seat) : seat_(std::move(seat)) {}

  bool done() const override { return (flags_.load(std::memory_order_acquire) & is_done) != 0; }

  Result<void> wait(Duration timeout) override;
  void on_done(Done callback) override;

  // Once, by whoever drives.
  void finish(Result<void> outcome);

  // Only when done, and as long as nobody calls reuse().
  const Result<void>& outcome() const { return outcome_; }
  // For the next call. Only while nobody else knows of this object.
  void reuse() { flags_.store(0, std::memory_order_relaxed); }

 private:
  enum Flag : unsigned { is_done = 1, has_sleeper = 2, has_callback = 4 };
  void drive_or_sleep(TimePoint deadline);
  bool sit_and_drive(TimePoint deadline);
  void sleep(TimePoint deadline);

  const std::shared_ptr<Seat> seat_;
  std::atomic<unsigned> flags_{0};
  Result<void> outcome_;  // written before is_done
  std::mutex mutex_;      // of those who sleep, and of the callback
  std::condition_variable changed_;
  Done callback_;
};

}  // namespace beeline::exec
