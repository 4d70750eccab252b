// Watches the control connection while the data path is busy.
#pragma once

#include <optional>

#include "perf/channel.h"
#include "perf/result.h"

namespace beeline::perf {

// How long a peer that is alive may take for the next step, and the data path for the
// next completion.
inline constexpr Duration step_timeout = 30s;

// Heartbeats out; the peer's death, failure or end of its part in; no progress for too
// long is an error.
class Watch {
 public:
  Watch(Channel& channel, Observer* observer, std::uint64_t message_bytes);

  // Call in every turn of a loop, with what is complete so far. Cheap most of the time.
  Result<void> turn(std::uint64_t messages);
  // The peer's "finished"; waits for it when it has not come yet.
  Result<Finished> wait_finished();
  const std::optional<Finished>& finished() const { return finished_; }

 private:
  Result<void> look(TimePoint now, std::uint64_t messages);

  Channel& channel_;
  Observer* observer_;
  const std::uint64_t message_bytes_;
  std::optional<Finished> finished_;
  unsigned turns_ = 0;
  TimePoint start_, last_look_, last_progress_, last_report_;
  std::uint64_t last_messages_ = 0;
};

}  // namespace beeline::perf
