// What other threads want of whoever drives the communicator: calls, an abort, its end.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "exec/progress/work_state.h"

namespace beeline::exec {

struct PendingCall {
  Call call;
  std::shared_ptr<WorkState> work;
};

class Inbox {
 public:
  // ---- any thread

  // An error when the communicator has failed (its cause), or too many calls wait.
  Result<void> submit(PendingCall call);
  void abort(std::string reason);  // the first reason counts
  void stop() { stop_ = true; }

  // Calls that are not finished, waiting or under way.
  std::size_t pending() const { return pending_.load(); }
  bool has_abort() const { return has_abort_.load(std::memory_order_acquire); }
  bool stop_requested() const { return stop_.load(std::memory_order_acquire); }

  // ---- whoever drives

  void one_finished() { pending_.fetch_sub(1); }

  std::optional<PendingCall> next_call();
  std::optional<std::string> abort_reason();  // once
  // From now on submit() fails with `cause`. The calls that waited.
  std::deque<PendingCall> close(const Error& cause);

 private:
  std::mutex mutex_;
  std::deque<PendingCall> calls_;
  std::optional<Error> closed_;
  std::optional<std::string> abort_;
  bool aborted_ = false;
  std::atomic<std::size_t> pending_{0};
  std::atomic<bool> has_abort_{false}, stop_{false};
};

}  // namespace beeline::exec
