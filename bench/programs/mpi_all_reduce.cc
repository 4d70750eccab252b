// MPI_Allreduce in the measuring loop of all_reduce.h. bench/compare builds it with mpicxx and starts it with
// mpirun.
//
//   mpirun -np 2 mpi_all_reduce --sizes 8,1048576 [--batch-seconds S] [--batches N] [--pin]
#include <mpi.h>

#include "all_reduce.h"

namespace {

class MpiGroup {
 public:
  MpiGroup() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const { return rank_; }
  int size() const { return size_; }
  void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  void all_reduce(const float* send, float* receive, std::size_t count) {
    MPI_Allreduce(send, receive, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  std::int64_t largest(std::int64_t mine) {
    std::int64_t all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    return all;
  }

 private:
  int rank_ = 0;
  int size_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Arguments arguments(argc, argv);
  const bench::Options options = arguments.options();
  // Before anything starts a thread: those inherit it.
  if (options.pin) bench::pin_to_core(std::atoi(std::getenv("OMPI_COMM_WORLD_RANK")));
  MPI_Init(&argc, &argv);
  {
    MpiGroup group;
    bench::measure(group, options);
  }
  MPI_Finalize();
}
