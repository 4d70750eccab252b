// What a run found, for tables and JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/address.h"
#include "perf/message.h"
#include "perf/options.h"
#include "perf/statistics.h"

namespace beeline::perf {

// Everything that both ends agreed on before the first byte.
struct Agreement {
  Plan plan;
  bool is_server = false;
  std::string provider, device;
  bool ethernet = true;
  int gid_index = 0;
  std::uint32_t mtu_bytes = 0;
  std::uint32_t local_mtu_bytes = 0, remote_mtu_bytes = 0;
  std::uint32_t inline_bytes = 0;
  std::uint32_t reads = 1;
  // How the receiver of a WRITE latency test notices a message.
  enum class Arrival : std::uint8_t { completion, memory } arrival = Arrival::completion;
  EndpointInfo local, remote;
};

struct BandwidthResult {
  double average_bytes_per_s = 0, peak_bytes_per_s = 0;
  double messages_per_s = 0;
};

struct Row {
  std::uint64_t bytes = 0;
  std::uint64_t iterations = 0;  // messages, all queue pairs and directions
  std::optional<BandwidthResult> bandwidth;
  std::optional<LatencySummary> latency;
  Verdict verdict;  // with --check: both ends together
};

struct Report {
  Agreement agreement;
  std::string lane;  // what carried the messages, where the card counts it: "local", "wire" or "both"
  std::vector<Row> rows;
};

// Called while a run goes on.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void agreed(const Agreement& agreement) = 0;
  virtual void row(const Row& row) = 0;
  // About once a second.
  virtual void progress(std::uint64_t bytes, std::uint64_t messages, Duration elapsed) = 0;
};

}  // namespace beeline::perf
