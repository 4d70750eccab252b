// When to send again, and when to give up.
//
// IBTA's local ACK timeout (4.096 us * 2^timeout) is sized for hardware and is far too slow
// to recover with; it serves as the bound: no progress for timeout * (retry_count + 1) ends
// the connection. In between, retransmission follows the measured round trip (RFC 6298). It
// doubles while nothing comes back, and speeds up again step by step, or at once when a round
// trip is measured: a peer that has become slow answers every packet late, and each looks lost.
#pragma once

#include <cstdint>

#include "base/time.h"

namespace beeline::proto {

inline constexpr Duration min_retransmit_timeout = 1ms;
inline constexpr Duration initial_retransmit_timeout = 10ms;
inline constexpr Duration max_retransmit_timeout = 1s;  // where no timeout is configured

// The configured timeout as a duration; zero: for ever.
constexpr Duration ack_timeout(std::uint8_t timeout) {
  return timeout == 0 ? Duration{0} : Duration{4096ll << (timeout & 0x1F)};
}

class RetransmitTimer {
 public:
  void configure(std::uint8_t timeout, std::uint8_t retry_count);

  // Something is in flight: starts the clock unless it runs already.
  void arm(TimePoint now);
  void stop() { deadline_ = TimePoint::never(); }
  // The peer acknowledged something new; `in_flight`: more is outstanding.
  void progress(TimePoint now, bool in_flight);
  // The peer said something that brings us no further: it lives, but the time to give up runs on.
  void heard(TimePoint now) {
    if (running()) restart(now);
  }
  // The deadline is over. What has passed since then is not held against the peer: a process that was
  // stopped, or had no processor, has sent nothing meanwhile.
  void expire(TimePoint now) { since_ = since_ + (now - deadline_); }
  // No progress: waits twice as long from now on.
  void back_off(TimePoint now);
  // One round trip, of a packet that was sent once only (Karn's rule).
  void sample(Duration round_trip);

  // An answer to what was sent later than this ago cannot have come yet.
  Duration shortest_round_trip() const {
    return smoothed_.count() == 0 ? initial_retransmit_timeout / 2 : smoothed_ / 2;
  }
  bool running() const { return deadline_ != TimePoint::never(); }
  TimePoint deadline() const { return deadline_; }
  bool given_up(TimePoint now) const { return give_up_after_.count() != 0 && now - since_ >= give_up_after_; }

 private:
  Duration timeout() const;
  void restart(TimePoint now);

  Duration ceiling_ = max_retransmit_timeout;
  Duration give_up_after_{0};
  Duration smoothed_{0};  // zero: no sample yet
  Duration variation_{0};
  unsigned doublings_ = 0;
  TimePoint since_{};  // last progress
  TimePoint deadline_ = TimePoint::never();
};

}  // namespace beeline::proto
