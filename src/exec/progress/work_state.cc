#include "exec/progress/work_state.h"

#include <algorithm>
#include <thread>

#include "base/clock.h"

namespace beeline::exec {
namespace {

// Somebody else drives. He may be about to get up, so try again for a moment before sleeping.
constexpr int tries = 64;

// Sleeps end by notification. This only bounds what a thread loses that nobody drives for: the one who
// drove has got up, and the progress thread has not sat down yet.
constexpr Duration longest_sleep = 10ms;

TimePoint deadline_after(Duration timeout) {
  constexpr Duration longest = std::chrono::hours(24 * 367);
  return monotonic_now() + std::clamp(timeout, Duration{}, longest);
}

}  // namespace

Result<void> WorkState::wait(Duration timeout) {
  if (!done()) drive_or_sleep(deadline_after(timeout));
  if (!done()) return fail(Errc::timed_out, "the call is still running");
  return outcome_;
}

void WorkState::drive_or_sleep(TimePoint deadline) {
  do {
    seat_->begins_to_wait();
    const bool sat = sit_and_drive(deadline);
    if (!sat) seat_->ends_to_wait();  // the progress thread may drive for us
    if (!sat && !done()) sleep(std::min(deadline, monotonic_now() + longest_sleep));
  } while (!done() && monotonic_now() < deadline);
}

// Ends to wait before handing over: else the progress thread could find that it is not needed.
bool WorkState::sit_and_drive(TimePoint deadline) {
  for (int tried = 0; tried < tries && !done(); ++tried) {
    if (seat_->try_take()) {
      Driver* const driver = seat_->driver;
      if (driver != nullptr) driver->drive_for(*this, deadline);
      seat_->ends_to_wait();
      if (driver != nullptr) driver->hand_over();
      seat_->leave();
      return true;
    }
    seat_->ring_thread();
    std::this_thread::yield();
  }
  return false;
}

void WorkState::sleep(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  if ((flags_.fetch_or(has_sleeper) & is_done) != 0) return;
  const Duration left = deadline - monotonic_now();
  if (left > Duration{}) changed_.wait_for(lock, left, [this] { return done(); });
}

void WorkState::on_done(Done callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!done()) {
      callback_ = std::move(callback);
      if ((flags_.fetch_or(has_callback) & is_done) == 0) return;
      callback = std::move(callback_);
    }
  }
  callback(outcome_);  // does not change any more
}

void WorkState::finish(Result<void> outcome) {
  outcome_ = std::move(outcome);
  const unsigned before = flags_.fetch_or(is_done);
  if (before == 0) return;
  Done callback;
  {
    const std::lock_guard lock(mutex_);
    if ((before & has_callback) != 0) callback = std::move(callback_);
    changed_.notify_all();
  }
  if (callback) callback(outcome_);
}

}  // namespace beeline::exec
