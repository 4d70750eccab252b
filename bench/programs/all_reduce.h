// The measuring loop that beeline_all_reduce.cc and mpi_all_reduce.cc share, so that both are measured alike:
// the same buffers, the same warm-up, batches of the same length, the same clock, every element checked after
// each batch.
//
// A Group has rank(), size(), all_reduce(const float*, float*, size_t), barrier() and largest(int64_t).
#ifndef BENCH_PROGRAMS_ALL_REDUCE_H
#define BENCH_PROGRAMS_ALL_REDUCE_H

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace bench {

struct Options {
  std::vector<std::size_t> sizes;      // bytes
  double batch_seconds = 0.02;         // a batch repeats the operation for about this long
  int batches = 9;                     // per size; their medians are what is compared
  std::size_t longest_batch = 100000;  // operations
  bool pin = false;                    // rank r to core r modulo the number of cores
};

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "all_reduce: %s\n", what.c_str());
  std::_Exit(1);
}

// The operand's element i of a rank: small whole numbers, so that every order of additions gives the same
// sum.
inline float operand(std::size_t i, int rank) {
  return static_cast<float>(i % 1024) + static_cast<float>(rank);
}
inline float sum(std::size_t i, int ranks) {
  return static_cast<float>(ranks) * static_cast<float>(i % 1024) +
         static_cast<float>(ranks * (ranks - 1) / 2);
}

inline void pin_to_core(int rank) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<std::size_t>(rank) % static_cast<std::size_t>(::sysconf(_SC_NPROCESSORS_ONLN)), &cores);
  if (::sched_setaffinity(0, sizeof cores, &cores) != 0) fail("this process cannot be pinned to a core");
}

template <class Group>
class Measurement {
 public:
  Measurement(Group& group, const Options& options, std::size_t bytes)
      : group_(group), options_(options), send_(bytes / sizeof(float)), receive_(send_.size()) {
    for (std::size_t i = 0; i < send_.size(); ++i) send_[i] = operand(i, group.rank());
  }

  // One line of JSON, on rank 0.
  void run() {
    const std::size_t iterations = batch_length();
    batch(iterations);
    std::vector<double> seconds;
    for (int i = 0; i < options_.batches; ++i) seconds.push_back(batch(iterations));
    if (group_.rank() != 0) return;
    std::printf("{\"bytes\": %zu, \"iterations\": %zu, \"us\": [", send_.size() * sizeof(float), iterations);
    for (std::size_t i = 0; i < seconds.size(); ++i)
      std::printf("%s%.4f", i == 0 ? "" : ", ", seconds[i] * 1e6);
    std::printf("]}\n");
    std::fflush(stdout);
  }

 private:
  // Operations that take batch_seconds. The better of two tries counts, for one that is interrupted says
  // nothing; this is the warm-up, too.
  std::size_t batch_length() {
    std::size_t iterations = 1;
    for (;;) {
      const double once = std::max(std::min(batch(iterations), batch(iterations)), 1e-9);
      const auto wanted = static_cast<std::size_t>(options_.batch_seconds / once);
      if (wanted <= 4 * iterations) return std::clamp<std::size_t>(wanted, 1, options_.longest_batch);
      if (iterations >= options_.longest_batch) return options_.longest_batch;
      iterations = std::min(4 * iterations, options_.longest_batch);
    }
  }

  // Seconds per operation on the slowest rank.
  double batch(std::size_t iterations) {
    std::fill(receive_.begin(), receive_.end(), std::numeric_limits<float>::quiet_NaN());
    group_.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < iterations; ++i)
      group_.all_reduce(send_.data(), receive_.data(), send_.size());
    const auto took = std::chrono::steady_clock::now() - start;
    check();
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
    return static_cast<double>(group_.largest(ns)) * 1e-9 / static_cast<double>(iterations);
  }

  void check() const {
    for (std::size_t i = 0; i < receive_.size(); ++i) {
      if (receive_[i] != sum(i, group_.size())) fail("element " + std::to_string(i) + " is wrong");
    }
  }

  Group& group_;
  const Options& options_;
  std::vector<float> send_;
  std::vector<float> receive_;
};

template <class Group>
void measure(Group& group, const Options& options) {
  for (const std::size_t bytes : options.sizes) Measurement<Group>(group, options, bytes).run();
}

// Takes what it knows from argv; gives back what it does not know, for the caller.
class Arguments {
 public:
  Arguments(int count, char** words) : words_(words + 1, words + count) {}

  bool has(const std::string& name) const {
    return std::find(words_.begin(), words_.end(), name) != words_.end();
  }
  std::string value(const std::string& name, const std::string& otherwise) const {
    const auto at = std::find(words_.begin(), words_.end(), name);
    if (at == words_.end()) return otherwise;
    if (at + 1 == words_.end()) fail(name + " needs a value");
    return *(at + 1);
  }

  Options options() const {
    Options options;
    options.batch_seconds = std::stod(value("--batch-seconds", "0.02"));
    options.batches = std::stoi(value("--batches", "9"));
    options.pin = has("--pin");
    std::string sizes = value("--sizes", "8");
    for (std::size_t at = 0; at < sizes.size();) {
      const std::size_t comma = std::min(sizes.find(',', at), sizes.size());
      options.sizes.push_back(std::stoul(sizes.substr(at, comma - at)));
      at = comma + 1;
    }
    return options;
  }

 private:
  std::vector<std::string> words_;
};

}  // namespace bench

#endif  // BENCH_PROGRAMS_ALL_REDUCE_H
