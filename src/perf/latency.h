// One latency test as one end sees it: ping-pong for WRITE and SEND, single READs.
#pragma once

#include "perf/checking.h"
#include "perf/endpoint.h"
#include "perf/statistics.h"
#include "perf/watch.h"

namespace beeline::perf {

class LatencyRound {
 public:
  LatencyRound(Endpoint& end, const Round& round, bool is_server, Agreement::Arrival arrival);

  // Posts the receives, or resets the byte that is polled, before the peer starts.
  Result<void> prepare();
  Result<void> run(Channel& channel, Watch& watch);
  LatencyHistogram take_histogram() { return std::move(histogram_); }
  const Verdict& verdict() const { return verdict_; }
  std::uint64_t messages() const { return done_; }

 private:
  Result<void> initiate(Channel& channel, Watch& watch);
  Result<void> respond(Watch& watch);
  void fill(std::uint64_t iteration);
  void verify(std::uint64_t iteration);
  Result<void> post(std::uint64_t iteration, Watch& watch);
  // False when the peer has finished instead.
  Result<bool> wait_arrival(std::uint64_t iteration, Watch& watch);
  bool arrived(std::uint64_t iteration) const;
  Result<void> poll();
  std::uint64_t checked_bytes() const;

  Endpoint& end_;
  const Round round_;
  const bool is_server_;
  const Operation operation_;
  const bool polls_memory_;
  const std::uint32_t signal_every_;
  std::uint64_t posted_ = 0, completed_ = 0, received_ = 0, done_ = 0;
  LatencyHistogram histogram_;
  Verdict verdict_;
};

}  // namespace beeline::perf
