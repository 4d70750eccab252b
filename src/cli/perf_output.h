// What `beeline perf` prints while it runs.
#pragma once

#include "perf/result.h"

namespace beeline::cli {

// Tables on standard output; on standard error, when that is a terminal, a line that
// shows how a long run is doing.
class PerfOutput : public perf::Observer {
 public:
  explicit PerfOutput(bool report_gbits);
  ~PerfOutput() override;
  void agreed(const perf::Agreement& agreement) override;
  void row(const perf::Row& row) override;
  void progress(std::uint64_t bytes, std::uint64_t messages, Duration elapsed) override;

 private:
  void clear_progress();
  const bool report_gbits_;
  const bool terminal_;
  bool line_open_ = false;
};

// For the second process of --loopback, which says nothing.
class SilentOutput : public perf::Observer {
 public:
  void agreed(const perf::Agreement&) override {}
  void row(const perf::Row&) override {}
  void progress(std::uint64_t, std::uint64_t, Duration) override {}
};

}  // namespace beeline::cli
