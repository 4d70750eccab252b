// The last events of a communicator, kept for the day something goes wrong. Written by
// the progress thread only.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>

#include "base/ids.h"
#include "base/time.h"

namespace beeline::exec {

class FlightRecorder {
 public:
  // `what` must outlive the recorder: a literal.
  void record(TimePoint now, const char* what, Rank peer, std::uint64_t call, std::uint32_t piece = 0,
              std::uint32_t step = 0, std::uint64_t bytes = 0) {
    events_[next_++ % events_.size()] = {now, what, peer, call, piece, step, bytes};
  }

  // The last `count` events, oldest first, one a line, with their age.
  std::string last(std::size_t count, TimePoint now) const {
    std::string text;
    const std::uint64_t kept = next_ < events_.size() ? next_ : events_.size();
    for (std::uint64_t i = next_ - (count < kept ? count : kept); i < next_; ++i) {
      const Event& event = events_[i % events_.size()];
      const auto age_us = std::chrono::duration_cast<std::chrono::microseconds>(now - event.when).count();
      text += fmt::format("\n  {:>10} us ago: {}", age_us, event.what);
      if (event.peer.value >= 0) text += fmt::format(", rank {}", event.peer.value);
      text += fmt::format(", call {}", event.call);
      if (event.bytes != 0)
        text += fmt::format(", piece {} step {}, {} bytes", event.piece, event.step, event.bytes);
    }
    return text;
  }

 private:
  struct Event {
    TimePoint when;
    const char* what = "";
    Rank peer{-1};
    std::uint64_t call = 0;
    std::uint32_t piece = 0, step = 0;
    std::uint64_t bytes = 0;
  };
  std::array<Event, 256> events_{};
  std::uint64_t next_ = 0;
};

}  // namespace beeline::exec
