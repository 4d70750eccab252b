// The outcome of one call, shared between its caller and the progress thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "exec/communicator.h"

namespace beeline::exec {

class WorkState : public Work {
 public:
  bool done() const override {
    const std::lock_guard lock(mutex_);
    return outcome_.has_value();
  }

  Result<void> wait(Duration timeout) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return outcome_.has_value(); }))
      return fail(Errc::timed_out, "the call is still running");
    return *outcome_;
  }

  void on_done(Done callback) override {
    {
      const std::lock_guard lock(mutex_);
      if (!outcome_) {
        callback_ = std::move(callback);
        return;
      }
    }
    callback(*outcome_);  // does not change any more
  }

  // Once, by the progress thread.
  void finish(Result<void> outcome) {
    Done callback;
    {
      const std::lock_guard lock(mutex_);
      outcome_ = std::move(outcome);
      callback = std::move(callback_);
      changed_.notify_all();
    }
    if (callback) callback(*outcome_);
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Result<void>> outcome_;
  Done callback_;
};

}  // namespace beeline::exec
