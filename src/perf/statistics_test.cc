#include "perf/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"

namespace beeline::perf {
namespace {

TEST(LatencyHistogram, SmallValuesAreExact) {
  LatencyHistogram histogram;
  for (std::uint64_t ns = 1; ns <= 500; ++ns) histogram.add(ns);
  EXPECT_EQ(histogram.percentile_ns(0.5), 250u);
  EXPECT_EQ(histogram.percentile_ns(0.99), 495u);
  EXPECT_EQ(histogram.percentile_ns(0.999), 500u);
  EXPECT_EQ(histogram.percentile_ns(0), 1u);
  EXPECT_EQ(histogram.percentile_ns(1), 500u);
}

TEST(LatencyHistogram, OneSampleIsEveryPercentile) {
  LatencyHistogram histogram;
  histogram.add(123'457);
  for (const double fraction : {0.0, 0.5, 0.999, 1.0}) EXPECT_EQ(histogram.percentile_ns(fraction), 123'457u);
  const LatencySummary summary = histogram.summarize();
  EXPECT_DOUBLE_EQ(summary.min_us, 123.457);
  EXPECT_DOUBLE_EQ(summary.max_us, 123.457);
  EXPECT_DOUBLE_EQ(summary.average_us, 123.457);
  EXPECT_DOUBLE_EQ(summary.stdev_us, 0);
}

TEST(LatencyHistogram, NoSampleIsZero) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.percentile_ns(0.5), 0u);
  EXPECT_EQ(histogram.summarize().samples, 0u);
  EXPECT_EQ(histogram.summarize().min_us, 0);
}

TEST(LatencyHistogram, PercentilesAgreeWithSorting) {
  Prng prng(7);
  for (int trial = 0; trial < 20; ++trial) {
    LatencyHistogram histogram;
    std::vector<std::uint64_t> sorted;
    const std::size_t count = 1 + prng.below(3000);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t value = prng.next() >> prng.below(64);  // all magnitudes
      sorted.push_back(value);
      histogram.add(value);
    }
    std::sort(sorted.begin(), sorted.end());
    for (const double fraction : {0.01, 0.5, 0.9, 0.99, 0.999}) {
      const auto rank = static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(count)));
      const double exact = static_cast<double>(sorted[std::max<std::size_t>(rank, 1) - 1]);
      EXPECT_NEAR(static_cast<double>(histogram.percentile_ns(fraction)), exact, exact / 256 + 1);
    }
  }
}

TEST(LatencyHistogram, ExtremesNeitherOverflowNorGoNegative) {
  LatencyHistogram histogram;
  histogram.add(0);
  histogram.add(UINT64_MAX);
  EXPECT_EQ(histogram.percentile_ns(0.5), 0u);
  EXPECT_GE(histogram.percentile_ns(1), UINT64_MAX - (UINT64_MAX >> 8));
  EXPECT_GT(histogram.summarize().stdev_us, 0);
}

TEST(LatencyHistogram, DeviationAndHalves) {
  LatencyHistogram histogram;
  for (const std::uint64_t ns : {2000u, 4000u, 4000u, 4000u, 5000u, 5000u, 7000u, 9000u}) histogram.add(ns);
  EXPECT_DOUBLE_EQ(histogram.summarize().average_us, 5);
  EXPECT_DOUBLE_EQ(histogram.summarize().stdev_us, 2);
  EXPECT_DOUBLE_EQ(histogram.summarize(2).average_us, 2.5);
  EXPECT_DOUBLE_EQ(histogram.summarize(2).stdev_us, 1);
  EXPECT_DOUBLE_EQ(histogram.summarize(2).max_us, 4.5);
}

TEST(PeakMeter, IsTheBestWindowAndNeverBelowTheAverage) {
  PeakMeter meter(0);
  meter.add(10'000'000, 1'000'000);   // 100 MB/s
  meter.add(20'000'000, 4'000'000);   // 300 MB/s
  meter.add(20'000'001, 90'000'000);  // too short to count
  meter.add(40'000'000, 5'000'000);   // 50 MB/s
  EXPECT_DOUBLE_EQ(meter.peak_bytes_per_s(125e6), 300e6);
  EXPECT_DOUBLE_EQ(meter.peak_bytes_per_s(400e6), 400e6);
  EXPECT_DOUBLE_EQ(PeakMeter(5).peak_bytes_per_s(17), 17) << "a run shorter than a window";
}

}  // namespace
}  // namespace beeline::perf
