// How a communicator fails: finding the cause, telling everybody, ending what is under way.

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "exec/progress/progress.h"

namespace beeline::exec {
namespace {

// After a connection broke: how long somebody may take to tell us the reason. Silence of the
// peer is only a symptom; any other status is a reason that others wait for.
constexpr Duration explanation_of_silence = 500ms, explanation_of_others = 100ms;
// A rank that only waits for a rank that waits itself lets others, who know better, speak first.
constexpr Duration grace_without_evidence = 1s;
constexpr Duration control_every = 1ms;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void Progress::check_health(TimePoint now) {
  if (failed_) return;
  if (auto cause = find_cause(now)) {
    fail_all(with_context(*cause), *cause);
    return;
  }
  if (current_ && !current_->is_small && !verdict_)
    if (auto difference = small_.difference(current_->fingerprint)) verdict_ = std::move(*difference);
  if (current_ && !suspicion_) check_patience(now);
}

// In the order of how sure we can be.
std::optional<Error> Progress::find_cause(TimePoint time) {
  if (verdict_) return verdict_;
  if (time >= next_control_check_) {
    next_control_check_ = time + control_every;
    if (auto failure = control_.poll_failure()) return std::move(failure->error);
  }
  if (!suspicion_) return std::nullopt;
  const bool silence = suspicion_->code == Errc::peer_lost;
  if (time - suspicion_since_ < (silence ? explanation_of_silence : explanation_of_others))
    return std::nullopt;
  return suspicion_;
}

// Who is late is warned about, and in the end an error.
void Progress::check_patience(TimePoint time) {
  if (current_->started == TimePoint{}) note_start(*current_, time);
  const Duration waited = time - current_->started;
  if (time >= current_->next_warning) {
    logger()->warn("{} has been waiting for {:.1f} s in {}: {}", control_.describe(options_.rank),
                   seconds(waited), current_call(), whom_we_wait_for());
    current_->next_warning = time + 2 * waited;
  }
  const bool evidence = current_->is_small ? small_.knows_who_is_missing() : roll_call_.missing().has_value();
  const Duration grace = evidence ? Duration{} : grace_without_evidence;
  if (waited < options_.operation_timeout + grace) return;
  const Error error = timed_out(waited);
  fail_all(error, error);
}

std::string Progress::current_call() const {
  return fmt::format("call {}, {}", current_->fingerprint.sequence, describe(current_->fingerprint));
}

std::string Progress::whom_we_wait_for() const {
  std::string text;
  const auto list = [&](const std::vector<Rank>& ranks, const char* what) {
    for (const Rank rank : ranks)
      text += fmt::format("{}{} {}", text.empty() ? "" : "; ", control_.describe(rank), what);
  };
  if (current_->is_small) {
    list(small_.silent(), small_.knows_who_is_missing()
                              ? "has not made this call yet"
                              : "has not made this call yet, or waits for a rank that has not");
    return text.empty() ? "the network is late" : text;
  }
  if (const auto missing = roll_call_.missing()) {
    list({*missing}, "has not made this call yet");
    return text;
  }
  list(roll_call_.silent(), "has not made this call yet, or waits for a rank that has not");
  if (text.empty()) list(run_.waiting_for(), "is in this call, but is not done with its part");
  return text.empty() ? "the network is late" : text;
}

Error Progress::timed_out(Duration waited) const {
  return {Errc::timed_out, fmt::format("{} timed out after {:.1f} s on {}: {}. Last events:{}",
                                       current_call(), seconds(waited), control_.describe(options_.rank),
                                       whom_we_wait_for(), recorder_.last(8, monotonic_now()))};
}

// Whoever reads that a peer is gone wants to know what was under way, and whether it is us who left.
Error Progress::with_context(Error error) const {
  if (error.code != Errc::peer_lost) return error;
  if (const std::string fault = connections_->own_fault(); !fault.empty()) error.message += "; " + fault;
  if (current_) error.message += fmt::format(" (rank {} was in {})", options_.rank.value, current_call());
  return error;
}

// To the calls that come after it, the cause is not theirs.
Error Progress::as_seen_later(const Error& cause) const {
  const std::string where = current_         ? fmt::format("in call {}", sequence_)
                            : sequence_ != 0 ? fmt::format("after call {}", sequence_)
                                             : std::string("before its first call");
  return {cause.code, fmt::format("this group failed before, {}: {}", where, cause.message)};
}

// First nothing can touch the callers' memory any more, then they are told.
void Progress::fail_all(const Error& cause, const Error& for_others) {
  failed_ = true;
  control_.broadcast_failure(for_others);
  connections_->break_all();
  run_.abandon();
  small_.abandon();
  logger()->debug("{} failed: {}; last events:{}", control_.describe(options_.rank), cause.message,
                  recorder_.last(32, monotonic_now()));
  const Error later = as_seen_later(cause);
  auto waiting = inbox_.close(later);
  if (current_) {
    const auto failing = std::move(current_->pending.work);
    current_.reset();
    finish(*failing, tl::unexpected<Error>(cause));
  }
  for (PendingCall& call : waiting) finish(*call.work, tl::unexpected<Error>(later));
}

}  // namespace beeline::exec
