// Where rank 0 posts one word for all ranks: the launcher's own key-value store. It knows who belongs to the
// job and reaches every host, so that nobody has to guess where rank 0 is.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "bootstrap/socket.h"
#include "cli/ranks/job.h"

namespace beeline::cli {

class Noticeboard {
 public:
  virtual ~Noticeboard() = default;
  // Rank 0. The word has no blanks and at most `most_notice_bytes`.
  virtual Result<void> post(const std::string& word, const bootstrap::Deadline& deadline) = 0;
  // The others.
  virtual Result<std::string> read(const bootstrap::Deadline& deadline) = 0;
  // The host of a rank, where the launcher knows it; else empty.
  virtual std::string host_of(int rank, const bootstrap::Deadline& deadline) = 0;
  // Once each, before the process ends: a launcher takes a process that leaves without a word for a crash.
  virtual void leave(const bootstrap::Deadline& deadline) = 0;
};

// What MPICH's process manager takes for a value is 1024.
inline constexpr std::size_t most_notice_bytes = 1000;

// By PMIx (mpirun of Open MPI 4 and 5, srun --mpi=pmix), whose library is loaded here and not linked.
Result<std::unique_ptr<Noticeboard>> open_pmix(const bootstrap::Deadline& deadline);
// By PMI-1 on the descriptor that the launcher left open (mpiexec of MPICH and Intel MPI, srun --mpi=pmi2).
Result<std::unique_ptr<Noticeboard>> open_pmi(int descriptor, const bootstrap::Deadline& deadline);

}  // namespace beeline::cli
