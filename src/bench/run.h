// One rank of a measurement, through the public API only.
#pragma once

#include <string>

#include "base/result.h"
#include "bench/report.h"

namespace beeline::bench {

// As beeline_comm_options has them; an empty meeting point means: by torchrun's environment.
struct Place {
  int rank = 0, size = 1;
  std::string rendezvous;
  std::string device;
};

struct RunOptions {
  Job job;  // `ranks` is filled in when the group has met
  std::size_t min_bytes = 1024, max_bytes = 16u << 20, factor = 4;
  int iterations = 20, warmups = 5;
  bool check = true;
  std::string json_path;  // empty: none
};

// Joins the group and measures; rank 0 prints. The outcome is how many elements were wrong on any rank.
Result<std::uint64_t> run_rank(const Place& place, const RunOptions& options);

}  // namespace beeline::bench
