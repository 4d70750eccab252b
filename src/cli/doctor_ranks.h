// `beeline doctor` as one of several ranks (srun, mpirun): rank 0 shows what differs between the hosts, the
// others show nothing, and all end with one status.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "cli/ranks/job.h"
#include "doctor/host/report.h"

namespace beeline::cli {

struct RankArguments {
  bool compare = false, alone = false;
  std::string rendezvous;
  int rank = -1, size = 0;
  int wait_s = 60;
};

void add_rank_options(CLI::App& command, RankArguments& typed);

// The job that this process is a rank of, if it is to compare. What the environment says of one is believed,
// unless --no-compare; --compare makes it an error that there is none.
std::optional<Job> job_to_compare(const RankArguments& typed);

// Ends with the status of the comparison, on every rank.
void compare_ranks(const RankArguments& typed, const Job& job, const doctor::Report& report, bool json,
                   const doctor::View& view);

}  // namespace beeline::cli
