#include "exec/progress/inbox.h"

#include <utility>

#include "exec/limits.h"

namespace beeline::exec {

Result<void> Inbox::submit(PendingCall call) {
  const std::lock_guard lock(mutex_);
  if (closed_) return tl::unexpected<Error>(*closed_);
  if (calls_.size() == queued_calls)
    return fail(Errc::resource_exhausted, "{} collective calls wait already: wait for some of them first",
                queued_calls);
  calls_.push_back(std::move(call));
  pending_.fetch_add(1);
  return {};
}

void Inbox::abort(std::string reason) {
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  aborted_ = true;
  abort_ = std::move(reason);
  has_abort_ = true;
}

std::optional<PendingCall> Inbox::next_call() {
  const std::lock_guard lock(mutex_);
  if (calls_.empty()) return std::nullopt;
  PendingCall next = std::move(calls_.front());
  calls_.pop_front();
  return next;
}

std::optional<std::string> Inbox::abort_reason() {
  const std::lock_guard lock(mutex_);
  has_abort_ = false;
  return std::exchange(abort_, std::nullopt);
}

std::deque<PendingCall> Inbox::close(const Error& cause) {
  const std::lock_guard lock(mutex_);
  closed_ = cause;
  return std::exchange(calls_, {});
}

}  // namespace beeline::exec
