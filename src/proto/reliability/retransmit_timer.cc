#include "proto/reliability/retransmit_timer.h"

#include <algorithm>

namespace beeline::proto {
namespace {

constexpr unsigned max_doublings = 16;

}  // namespace

void RetransmitTimer::configure(std::uint8_t timeout_index, std::uint8_t retry_count) {
  *this = {};
  const Duration configured = ack_timeout(timeout_index);
  if (configured.count() == 0) return;
  // Software cannot answer within the microseconds that small indices mean.
  ceiling_ = std::max(configured, min_retransmit_timeout);
  give_up_after_ = ceiling_ * (retry_count + 1);
}

Duration RetransmitTimer::timeout() const {
  Duration base = smoothed_.count() == 0 ? initial_retransmit_timeout : smoothed_ + 4 * variation_;
  base = std::clamp(base, min_retransmit_timeout, ceiling_);
  return std::min<Duration>(base * (1ll << doublings_), ceiling_);
}

// Never later than the moment of giving up, so that the error is not late.
void RetransmitTimer::restart(TimePoint now) {
  deadline_ = now + timeout();
  if (give_up_after_.count() != 0) deadline_ = std::max(std::min(deadline_, since_ + give_up_after_), now);
}

void RetransmitTimer::arm(TimePoint now) {
  if (running()) return;
  since_ = now;
  restart(now);
}

void RetransmitTimer::progress(TimePoint now, bool in_flight) {
  since_ = now;
  if (doublings_ != 0) --doublings_;
  if (in_flight) {
    restart(now);
  } else {
    stop();
  }
}

void RetransmitTimer::back_off(TimePoint now) {
  if (doublings_ < max_doublings) ++doublings_;
  restart(now);
}

void RetransmitTimer::sample(Duration round_trip) {
  round_trip = std::max(round_trip, Duration{1});
  doublings_ = 0;
  if (smoothed_.count() == 0) {
    smoothed_ = round_trip;
    variation_ = round_trip / 2;
    return;
  }
  const Duration error = smoothed_ > round_trip ? smoothed_ - round_trip : round_trip - smoothed_;
  variation_ = (3 * variation_ + error) / 4;
  smoothed_ = (7 * smoothed_ + round_trip) / 8;
}

}  // namespace beeline::proto
