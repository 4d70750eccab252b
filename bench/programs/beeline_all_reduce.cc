// beeline::Communicator in the measuring loop of all_reduce.h. bench/compare starts one process per rank.
//
//   beeline_all_reduce --rank R --size N --rendezvous HOST:PORT --sizes 8,1048576
//                      [--batch-seconds S] [--batches N] [--pin]
//   … --idle SECONDS   measures the CPU time of a process that has a group, and nothing to do
#include <sys/resource.h>
#include <time.h>

#include <beeline/beeline.hpp>

#include "all_reduce.h"

namespace {

class BeelineGroup {
 public:
  explicit BeelineGroup(beeline::Communicator group) : group_(std::move(group)) {}
  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  void barrier() { group_.barrier(); }
  void all_reduce(const float* send, float* receive, std::size_t count) {
    group_.all_reduce(std::span<const float>(send, count), std::span<float>(receive, count));
  }
  std::int64_t largest(std::int64_t mine) {
    group_.all_reduce(std::span<std::int64_t>(&mine, 1), BEELINE_MAX);
    return mine;
  }

 private:
  beeline::Communicator group_;
};

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void sleep_for(double seconds) {
  timespec rest{static_cast<time_t>(seconds),
                static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
  while (::nanosleep(&rest, &rest) != 0) {
  }
}

// What is going on stops by itself within the first second.
void measure_idleness(BeelineGroup& group, double seconds) {
  float number = 1;
  float total = 0;
  group.all_reduce(&number, &total, 1);
  sleep_for(1);
  const double before = cpu_seconds();
  sleep_for(seconds);
  const double used = cpu_seconds() - before;
  std::printf("{\"seconds\": %.3f, \"cpu_seconds\": %.6f}\n", seconds, used);
  std::fflush(stdout);
  group.barrier();
}

int run(const bench::Arguments& arguments) {
  const bench::Options options = arguments.options();
  const int rank = std::stoi(arguments.value("--rank", "0"));
  // Before anything starts a thread: those inherit it.
  if (options.pin) bench::pin_to_core(rank);
  BeelineGroup group(beeline::Communicator::create(rank, std::stoi(arguments.value("--size", "1")),
                                                   arguments.value("--rendezvous", "127.0.0.1:29500")));
  const double idle = std::stod(arguments.value("--idle", "0"));
  if (idle > 0) {
    measure_idleness(group, idle);
  } else {
    bench::measure(group, options);
  }
  group.barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(bench::Arguments(argc, argv));
  } catch (const std::exception& error) {
    bench::fail(error.what());
  }
}
