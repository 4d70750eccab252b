// What other threads want of the progress thread: calls, an abort, its end.
#pragma once

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
  static Result<std::unique_ptr<Inbox>> create();
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // ---- any thread

  // An error when the communicator has failed (its cause), or too many calls wait.
  Result<std::shared_ptr<Work>> submit(const Call& call);
  void abort(std::string reason);  // the first reason counts
  void stop();

  // ---- progress thread

  std::optional<PendingCall> next_call();
  std::optional<std::string> abort_reason();  // once
  bool stop_requested();
  // From now on submit() fails with `cause`. The calls that waited.
  std::deque<PendingCall> close(const Error& cause);

  int descriptor() const { return descriptor_; }  // readable after any request
  void drain();

 private:
  explicit Inbox(int descriptor) : descriptor_(descriptor) {}
  void wake();

  const int descriptor_;
  std::mutex mutex_;
  std::deque<PendingCall> calls_;
  std::optional<Error> closed_;
  std::optional<std::string> abort_;
  bool aborted_ = false, stop_ = false;
};

}  // namespace beeline::exec
