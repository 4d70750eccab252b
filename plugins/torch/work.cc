#include "work.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "completer.h"
#include "errors.h"

namespace beeline::pytorch {

namespace {

using std::chrono::steady_clock;

std::optional<std::vector<at::Tensor>> profiled(const Request& request) { return request.sources(); }

// What this thread is in wait() for. It completes that itself, whoever else is told.
thread_local const WorkBeeline* waited_for = nullptr;

class WaitingFor {
 public:
  explicit WaitingFor(const WorkBeeline* work) : before_(std::exchange(waited_for, work)) {}
  ~WaitingFor() { waited_for = before_; }
  WaitingFor(const WaitingFor&) = delete;
  WaitingFor& operator=(const WaitingFor&) = delete;

 private:
  const WorkBeeline* const before_;
};

std::string title(const Request& request) { return std::string("beeline:") + request.name(); }

}  // namespace

WorkBeeline::WorkBeeline(Request request, int rank, std::uint64_t sequence, std::uint64_t first_call,
                         const std::string& place, Completer& completer)
    : Work(rank, request.type(), title(request).c_str(), profiled(request)),
      request_(std::move(request)),
      sequence_(sequence),
      first_call_(first_call),
      place_(place),
      completer_(completer),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

WorkBeeline::~WorkBeeline() {
  for (beeline_work* handle : handles_) {
    beeline_work_free(handle);
  }
}

std::size_t WorkBeeline::start(const c10::intrusive_ptr<WorkBeeline>& self, beeline_comm* comm) {
  self->completer_.expect();
  self->unfinished_ = 1;  // this function, so that nothing completes while it runs
  for (const Call& call : self->request_.calls()) {
    beeline_work* handle = nullptr;
    const beeline_status status = submit(comm, call, &handle);
    if (status != BEELINE_OK) {
      self->note_failure(status, beeline_last_error());
      break;
    }
    self->handles_.push_back(handle);
  }
  for (beeline_work* handle : self->handles_) {
    {
      const std::lock_guard lock(self->mutex_);
      ++self->unfinished_;
    }
    // The callback's own reference keeps the tensors alive until the library is done with them.
    const beeline_status status =
        beeline_work_on_done(handle, &WorkBeeline::on_done, c10::intrusive_ptr<WorkBeeline>(self).release());
    if (status != BEELINE_OK) {
      self->note_failure(status, beeline_last_error());
      finished_one(c10::intrusive_ptr<WorkBeeline>::reclaim(self.get()));
    }
  }
  const std::size_t taken = self->handles_.size();
  if (self->is_last_to_finish()) {  // all done already: nobody knows of this work yet, so end it here
    self->completer_.settle();
    self->complete();
  }
  return taken;
}

void WorkBeeline::on_done(void* user, beeline_status status, const char* message) {
  auto self = c10::intrusive_ptr<WorkBeeline>::reclaim(static_cast<WorkBeeline*>(user));
  if (status != BEELINE_OK) {
    self->note_failure(status, message);
  }
  finished_one(std::move(self));
}

bool WorkBeeline::is_last_to_finish() {
  const std::lock_guard lock(mutex_);
  return --unfinished_ == 0;
}

void WorkBeeline::finished_one(c10::intrusive_ptr<WorkBeeline> self) {
  if (!self->is_last_to_finish()) {
    return;
  }
  Completer& completer = self->completer_;
  // The library calls back on a thread that waits. If that is ours, no other thread need be woken; and it
  // holds a reference, so that this one is not the last to a tensor.
  if (waited_for == self.get()) {
    completer.settle();
    return;
  }
  // Also when a waiter has already completed it: the completer then only drops the
  // reference, which may be the last to a tensor and so need the GIL.
  completer.push(std::move(self));
}

void WorkBeeline::note_failure(beeline_status status, const char* message) {
  const std::lock_guard lock(mutex_);
  if (failure_ == BEELINE_OK) {
    failure_ = status;
    failure_message_ = message;
  }
}

bool WorkBeeline::claim() {
  const std::lock_guard lock(mutex_);
  return !std::exchange(claimed_, true);
}

std::exception_ptr WorkBeeline::outcome() {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ != BEELINE_OK) {
      return as_exception(failure_, describe() + ": " + failure_message_);
    }
  }
  try {
    const at::NoGradGuard no_grad;
    for (const CopyOut& copy : request_.copies()) {
      copy.to.copy_(copy.from);
    }
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void WorkBeeline::complete() {
  if (!claim()) {
    return;
  }
  const std::exception_ptr error = outcome();
  finish(error);
  if (error) {
    future_->setError(error);
  } else {
    future_->markCompleted(c10::IValue(request_.results()));
  }
}

void WorkBeeline::wait_for_calls(std::chrono::milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  const WaitingFor scope(this);
  for (beeline_work* handle : handles_) {
    double limit_s = 0;
    if (timeout > kNoTimeout) {
      // Not zero or less, which would mean no limit.
      limit_s = std::max(1e-6, std::chrono::duration<double>(deadline - steady_clock::now()).count());
    }
    const beeline_status status = beeline_work_wait(handle, limit_s);
    int done = 1;
    if (status == BEELINE_TIMED_OUT && beeline_work_test(handle, &done) == BEELINE_OK && done == 0) {
      std::rethrow_exception(as_exception(BEELINE_TIMED_OUT, describe() + ": not done within the " +
                                                                 std::to_string(seconds(timeout)) +
                                                                 " s that wait() was given; it runs on"));
    }
    if (status != BEELINE_OK) {
      note_failure(status, beeline_last_error());
    }
  }
}

bool WorkBeeline::wait(std::chrono::milliseconds timeout) {
  if (!isCompleted()) {
    wait_for_calls(timeout > kNoTimeout ? timeout : request_.timeout());
    complete();
  }
  std::unique_lock lock(mutex_);
  cv_.wait(lock, [this] { return completed_; });
  if (exception_) {
    std::rethrow_exception(exception_);
  }
  return true;
}

void WorkBeeline::synchronize() { wait(); }

std::vector<at::Tensor> WorkBeeline::result() { return request_.results(); }

c10::intrusive_ptr<c10::ivalue::Future> WorkBeeline::getFuture() { return future_; }

std::uint64_t WorkBeeline::getSequencenumber() const { return sequence_; }

std::chrono::milliseconds WorkBeeline::getTimeout() const { return request_.timeout(); }

std::string WorkBeeline::describe() const {
  const std::uint64_t last = first_call_ + request_.calls().size() - 1;
  const std::string calls = last > first_call_
                                ? "calls " + std::to_string(first_call_) + " to " + std::to_string(last)
                                : "call " + std::to_string(first_call_);
  return std::string("beeline: ") + request_.name() + " (" + calls + ") on " + place_;
}

}  // namespace beeline::pytorch
