// What a run says: the table that nccl-tests users can read, and JSON for programs.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/job.h"

namespace beeline::bench {

// One placement (out of place, in place) at one size.
struct Measured {
  double time_us = 0;                  // mean per operation, of the slowest rank
  std::optional<std::uint64_t> wrong;  // elements, all ranks and iterations together; none when unchecked
};

struct Row {
  std::size_t bytes = 0, count = 0;
  Measured out_of_place, in_place;
};

// Who took part.
struct Participant {
  int rank = 0;
  std::uint32_t pid = 0;
  std::string host, device;
};

struct RunDescription {
  Job job;
  std::size_t min_bytes = 0, max_bytes = 0, factor = 0;
  int iterations = 0, warmups = 0;
  bool check = true;
  std::vector<Participant> participants;
};

std::string table_head(const RunDescription& run);
std::string table_row(const Job& job, const Row& row);
// "# Out of bounds values : 0 OK" and "# Avg bus bandwidth    : …"
std::string table_tail(const Job& job, const std::vector<Row>& rows);

std::uint64_t total_wrong(const std::vector<Row>& rows);

// {"version":1, "environment":{…}, "results":[…]}
std::string to_json(const RunDescription& run, const std::vector<Row>& rows);
Result<void> write_file(const std::string& path, const std::string& text);

}  // namespace beeline::bench
