#include "exec/progress/inbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "exec/limits.h"

namespace beeline::exec {

Result<std::unique_ptr<Inbox>> Inbox::create() {
  const int descriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (descriptor < 0) return fail_errno(errno, "creating an eventfd");
  return std::unique_ptr<Inbox>(new Inbox(descriptor));
}

Inbox::~Inbox() { ::close(descriptor_); }

Result<std::shared_ptr<Work>> Inbox::submit(const Call& call) {
  auto work = std::make_shared<WorkState>();
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return tl::unexpected<Error>(*closed_);
    if (calls_.size() == queued_calls)
      return fail(Errc::resource_exhausted, "{} collective calls wait already: wait for some of them first",
                  queued_calls);
    calls_.push_back({call, work});
  }
  wake();
  return work;
}

void Inbox::abort(std::string reason) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    abort_ = std::move(reason);
  }
  wake();
}

void Inbox::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake();
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
  std::optional<std::string> reason = std::move(abort_);
  abort_.reset();
  return reason;
}

bool Inbox::stop_requested() {
  const std::lock_guard lock(mutex_);
  return stop_;
}

std::deque<PendingCall> Inbox::close(const Error& cause) {
  const std::lock_guard lock(mutex_);
  closed_ = cause;
  return std::exchange(calls_, {});
}

void Inbox::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(descriptor_, &one, sizeof one);  // full means readable
}

void Inbox::drain() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto taken = read(descriptor_, &count, sizeof count);
}

}  // namespace beeline::exec
