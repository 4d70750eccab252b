// Latencies of any number of samples in fixed memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

namespace beeline::perf {

struct LatencySummary {
  std::uint64_t samples = 0;
  double min_us = 0, max_us = 0, average_us = 0, stdev_us = 0;
  double median_us = 0, p99_us = 0, p999_us = 0;
};

// Minimum, maximum, average and deviation are exact. Percentiles come from buckets of at
// most 1/256 relative width; below 512 ns they are exact too.
class LatencyHistogram {
 public:
  LatencyHistogram();
  void add(std::uint64_t ns);
  std::uint64_t samples() const { return samples_; }
  // The smallest value that at least `fraction` of all samples do not exceed (nearest
  // rank), in nanoseconds; 0 without samples.
  std::uint64_t percentile_ns(double fraction) const;
  LatencySummary summarize(double divisor = 1) const;  // 2 turns round trips into halves

 private:
  static constexpr unsigned sub_bits = 8;  // 256 buckets per power of two
  static constexpr std::size_t buckets = (64 - sub_bits + 1) << sub_bits;
  static std::size_t bucket_of(std::uint64_t ns);
  static std::uint64_t value_of(std::size_t bucket);

  std::unique_ptr<std::array<std::uint64_t, buckets>> counts_;
  std::uint64_t samples_ = 0, min_ = UINT64_MAX, max_ = 0;
  double mean_ = 0, sum_of_squares_ = 0;  // Welford's recurrence
};

// The best rate over intervals that are long enough to mean something.
class PeakMeter {
 public:
  explicit PeakMeter(std::int64_t start_ns) : window_start_ns_(start_ns) {}
  void add(std::int64_t now_ns, std::uint64_t total_bytes);
  // Never below the average of the whole run.
  double peak_bytes_per_s(double average_bytes_per_s) const;

 private:
  static constexpr std::int64_t window_ns = 10'000'000;
  std::int64_t window_start_ns_;
  std::uint64_t window_start_bytes_ = 0;
  double best_ = 0;
};

}  // namespace beeline::perf
