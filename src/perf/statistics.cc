#include "perf/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace beeline::perf {

LatencyHistogram::LatencyHistogram() : counts_(std::make_unique<std::array<std::uint64_t, buckets>>()) {}

// Values below 2^(sub_bits+1) have a bucket each; above, the top sub_bits+1 bits choose it.
std::size_t LatencyHistogram::bucket_of(std::uint64_t ns) {
  const unsigned width = static_cast<unsigned>(std::bit_width(ns));
  if (width <= sub_bits + 1) return ns;
  const unsigned shift = width - (sub_bits + 1);
  return (std::size_t{shift} << sub_bits) + (ns >> shift);
}

// The middle of the bucket.
std::uint64_t LatencyHistogram::value_of(std::size_t bucket) {
  if (bucket < (std::size_t{2} << sub_bits)) return bucket;
  const std::size_t shift = (bucket >> sub_bits) - 1;
  const std::uint64_t top = (bucket & ((std::size_t{1} << sub_bits) - 1)) + (std::uint64_t{1} << sub_bits);
  return (top << shift) + (std::uint64_t{1} << shift) / 2;
}

void LatencyHistogram::add(std::uint64_t ns) {
  ++(*counts_)[bucket_of(ns)];
  ++samples_;
  min_ = std::min(min_, ns);
  max_ = std::max(max_, ns);
  const double value = static_cast<double>(ns);
  const double distance = value - mean_;
  mean_ += distance / static_cast<double>(samples_);
  sum_of_squares_ += distance * (value - mean_);
}

std::uint64_t LatencyHistogram::percentile_ns(double fraction) const {
  if (samples_ == 0) return 0;
  const double exact = std::ceil(fraction * static_cast<double>(samples_));
  const auto rank = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(exact), 1, samples_);
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    seen += (*counts_)[bucket];
    if (seen >= rank) return std::clamp(value_of(bucket), min_, max_);
  }
  return max_;
}

LatencySummary LatencyHistogram::summarize(double divisor) const {
  LatencySummary summary;
  summary.samples = samples_;
  if (samples_ == 0) return summary;
  const double per_us = 1000 * divisor;
  summary.min_us = static_cast<double>(min_) / per_us;
  summary.max_us = static_cast<double>(max_) / per_us;
  summary.average_us = mean_ / per_us;
  summary.stdev_us = std::sqrt(sum_of_squares_ / static_cast<double>(samples_)) / per_us;
  summary.median_us = static_cast<double>(percentile_ns(0.5)) / per_us;
  summary.p99_us = static_cast<double>(percentile_ns(0.99)) / per_us;
  summary.p999_us = static_cast<double>(percentile_ns(0.999)) / per_us;
  return summary;
}

void PeakMeter::add(std::int64_t now_ns, std::uint64_t total_bytes) {
  const std::int64_t elapsed = now_ns - window_start_ns_;
  if (elapsed < window_ns) return;
  const double rate =
      static_cast<double>(total_bytes - window_start_bytes_) * 1e9 / static_cast<double>(elapsed);
  best_ = std::max(best_, rate);
  window_start_ns_ = now_ns;
  window_start_bytes_ = total_bytes;
}

double PeakMeter::peak_bytes_per_s(double average_bytes_per_s) const {
  return std::max(best_, average_bytes_per_s);
}

}  // namespace beeline::perf
