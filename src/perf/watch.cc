#include "perf/watch.h"

#include "base/clock.h"

namespace beeline::perf {
namespace {

constexpr unsigned turns_per_clock = 64;
constexpr Duration look_interval = 20ms;
constexpr Duration report_interval = 1s;

}  // namespace

Watch::Watch(Channel& channel, Observer* observer, std::uint64_t message_bytes)
    : channel_(channel), observer_(observer), message_bytes_(message_bytes) {
  start_ = last_look_ = last_progress_ = last_report_ = monotonic_now();
}

Result<void> Watch::turn(std::uint64_t messages) {
  if (++turns_ % turns_per_clock != 0) return {};
  const TimePoint now = monotonic_now();
  if (now - last_look_ < look_interval) return {};
  last_look_ = now;
  return look(now, messages);
}

Result<void> Watch::look(TimePoint now, std::uint64_t messages) {
  if (messages != last_messages_) {
    last_messages_ = messages;
    last_progress_ = now;
  } else if (now - last_progress_ > step_timeout) {
    return fail(Errc::timed_out,
                "no message completed for {} s, and {} has not failed: is UDP port 4791 blocked on the way?",
                std::chrono::duration_cast<std::chrono::seconds>(step_timeout).count(), channel_.peer());
  }
  if (observer_ != nullptr && now - last_report_ >= report_interval) {
    last_report_ = now;
    observer_->progress(message_bytes_, messages, now - start_);
  }
  BEELINE_TRY_VOID(channel_.keep_alive());
  // What comes behind "finished" belongs to the next step.
  if (finished_) return {};
  BEELINE_TRY(const auto message, channel_.poll());
  if (!message) return {};
  BEELINE_TRY(finished_, decode_finished(*message));
  return {};
}

Result<Finished> Watch::wait_finished() {
  if (finished_) return *finished_;
  BEELINE_TRY(const auto message, channel_.receive(MessageType::finished, step_timeout));
  BEELINE_TRY(finished_, decode_finished(message));
  return *finished_;
}

}  // namespace beeline::perf
