// What a launcher (mpirun, srun) tells each process that it starts, in its environment.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/result.h"

namespace beeline::cli {

struct Job {
  int rank = 0, size = 1;
  std::string launcher;  // "mpirun", "srun", for messages
  // Equal on all ranks of the job, and on those of no other: a port and a secret come from it.
  std::string key;
  // Where rank 0 is to be expected, as far as the launcher tells: names or addresses.
  std::vector<std::string> rank0_hosts;
  // All hosts that have ranks, where the launcher tells, and this one among them.
  std::vector<std::string> nodes;
  std::string node;
  // The launcher's own ways to pass a word from rank to rank.
  bool has_pmix = false;
  std::optional<int> pmi_descriptor;
};

inline constexpr int most_ranks = 65536;

// Nothing, where no launcher started this process or it started no other. A variable that makes no sense is
// an error that names it.
Result<std::optional<Job>> job_from(const GetVariable& get);

}  // namespace beeline::cli
