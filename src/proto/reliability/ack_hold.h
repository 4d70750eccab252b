// Whether an acknowledgement waits a moment for a request of this side to leave with.
//
// A program that gets a message often answers it. If the acknowledgement left at once, the answer would
// have to wait for it, and a packet costs more than anything else here. So where answers have come lately, an
// acknowledgement waits for the next one. Where none come, it leaves at once; whether they come again is seen
// from requests that follow it closely.
#pragma once

#include <algorithm>

#include "base/time.h"

namespace beeline::proto {

// Longer than it takes to see a message and post another, and far below any time for retransmission.
inline constexpr Duration ack_hold = 8us;

class AckHold {
 public:
  // For as long as the program drives the queue pair; otherwise nobody knows when the next look will be.
  void allow(bool allowed) { allowed_ = allowed; }
  void reset() {
    confidence_ = expects;
    due_ = left_at_once_ = {};
  }

  // An acknowledgement is to leave. `only_packet`: of a message of one packet, as those are that are
  // answered.
  void begin(TimePoint now, bool only_packet) {
    due_ = only_packet && confidence_ >= expects ? now + ack_hold : TimePoint{};
  }
  // It is wanted now.
  void hurry() { due_ = {}; }
  bool is_due(TimePoint now) const { return !allowed_ || now >= due_; }
  // Never: it is wanted now.
  TimePoint due() const { return allowed_ && due_ != TimePoint{} ? due_ : TimePoint::never(); }

  // An acknowledgement leaves, behind a request or alone.
  void note_left(TimePoint now, bool with_request) {
    const bool waited = due_ != TimePoint{};
    if (with_request) return change(+1);
    if (waited && now < due_) return;  // nobody was allowed to wait any longer
    change(-1);
    if (!waited) left_at_once_ = now;
  }
  // A request leaves.
  void note_request(TimePoint now) {
    if (left_at_once_ == TimePoint{}) return;
    if (now - left_at_once_ <= ack_hold) change(+2);
    left_at_once_ = {};
  }

 private:
  static constexpr int expects = 2, sure = 4;

  void change(int by) { confidence_ = std::clamp(confidence_ + by, 0, sure); }

  bool allowed_ = false;
  int confidence_ = expects;
  TimePoint due_{};           // the beginning of time: at once
  TimePoint left_at_once_{};  // when one left that had not waited; the beginning of time: long ago
};

}  // namespace beeline::proto
