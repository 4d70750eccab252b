// One round of a bandwidth test as one end sees it: it posts its share, takes what the
// peer sends, and knows when both are complete.
#pragma once

#include <vector>

#include "perf/endpoint.h"
#include "perf/watch.h"

namespace beeline::perf {

class BandwidthRound {
 public:
  // `sends`: this end initiates. `receives`: the peer's SENDs arrive here.
  BandwidthRound(Endpoint& end, const Round& round, bool sends, bool receives);

  // Posts the receives that must be there before the peer starts.
  Result<void> prepare();
  // Until everything is sent and received. Tells the peer on `channel` when sending is done.
  Result<void> run(Channel& channel, Watch& watch);
  const Finished& finished() const { return finished_; }
  double peak_bytes_per_s() const { return peak_; }

 private:
  struct Progress {
    std::uint64_t target = 0;  // messages to send; without a number it is set when time is up
    std::uint64_t posted = 0, completed = 0;
    std::uint64_t received = 0;
    bool last_signaled = true;
  };

  Result<void> send_some();
  Result<void> post(std::size_t lane);
  Result<void> post_receives(std::size_t lane);
  Result<void> poll();
  Result<void> take(const ibv_wc& wc);
  void end_of_time();
  bool all_sent() const;
  bool all_received(const Watch& watch) const;

  Endpoint& end_;
  const Round round_;
  const bool sends_, receives_;
  const std::uint64_t slots_;
  const std::uint32_t signal_every_;
  std::vector<Progress> lanes_;
  std::uint64_t total_completed_ = 0, total_received_ = 0;
  Finished finished_;
  double peak_ = 0;
};

}  // namespace beeline::perf
