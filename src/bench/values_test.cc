// The checker must accept what is right and, above all, be able to fail.
#include "bench/values.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/random.h"

namespace beeline::bench {
namespace {

constexpr beeline_dtype all_dtypes[] = {BEELINE_FLOAT32, BEELINE_BFLOAT16, BEELINE_INT32, BEELINE_INT64,
                                        BEELINE_UINT8};
constexpr beeline_redop all_redops[] = {BEELINE_SUM, BEELINE_MAX, BEELINE_AVG};
constexpr std::size_t elements = 1300;  // several batches and a rest

float bf16_to_float(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

std::vector<std::byte> filled(const Job& job, int rank, std::uint64_t iteration, std::size_t first = 0) {
  std::vector<std::byte> out(elements * beeline_dtype_bytes(job.dtype));
  fill(job, rank, iteration, first, out);
  return out;
}

// A reduction written for this test: in the type itself, in the order of the ranks that `order` gives.
template <class T>
std::vector<std::byte> reduce_as(const Job& job, std::uint64_t iteration, const std::vector<int>& order) {
  std::vector<T> sum(elements), next(elements);
  const auto load = [&](std::vector<T>& to, int rank) {
    const auto bytes = filled(job, rank, iteration);
    std::memcpy(to.data(), bytes.data(), bytes.size());
  };
  const auto combine = [&](T a, T b) -> T {
    if constexpr (std::is_same_v<T, std::uint16_t>) {
      const float x = bf16_to_float(a), y = bf16_to_float(b);
      return float_to_bf16(job.redop == BEELINE_MAX ? std::max(x, y) : x + y);
    } else {
      return job.redop == BEELINE_MAX ? std::max(a, b) : static_cast<T>(a + b);
    }
  };
  load(sum, order[0]);
  for (std::size_t r = 1; r < order.size(); ++r) {
    load(next, order[r]);
    for (std::size_t i = 0; i < elements; ++i) sum[i] = combine(sum[i], next[i]);
  }
  if (job.redop == BEELINE_AVG)
    for (T& value : sum) {
      if constexpr (std::is_same_v<T, std::uint16_t>)
        value = float_to_bf16(bf16_to_float(value) / static_cast<float>(job.ranks));
      else
        value = static_cast<T>(value / static_cast<T>(job.ranks));
    }
  std::vector<std::byte> out(elements * sizeof(T));
  std::memcpy(out.data(), sum.data(), out.size());
  return out;
}

std::vector<std::byte> reduce(const Job& job, std::uint64_t iteration, const std::vector<int>& order) {
  switch (job.dtype) {
    case BEELINE_FLOAT32:
      return reduce_as<float>(job, iteration, order);
    case BEELINE_BFLOAT16:
      return reduce_as<std::uint16_t>(job, iteration, order);
    case BEELINE_INT32:
      return reduce_as<std::int32_t>(job, iteration, order);
    case BEELINE_INT64:
      return reduce_as<std::int64_t>(job, iteration, order);
    case BEELINE_UINT8:
      break;
  }
  return reduce_as<std::uint8_t>(job, iteration, order);
}

std::vector<int> shuffled_ranks(int ranks, std::uint64_t seed) {
  std::vector<int> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  Prng prng(seed);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[prng.below(i)]);
  return order;
}

TEST(Checker, AcceptsEveryRightReductionInAnyOrder) {
  for (const auto dtype : all_dtypes)
    for (const auto redop : all_redops)
      for (const int ranks : {1, 2, 3, 4, 7, 16, 100})
        for (std::uint64_t order = 0; order < 3; ++order) {
          const Job job{Operation::all_reduce, dtype, redop, 0, ranks};
          ASSERT_TRUE(check_is_possible(job).has_value());
          EXPECT_EQ(count_wrong(job, 0, 5, 0, reduce(job, 5, shuffled_ranks(ranks, order))), 0u)
              << name(dtype) << " " << name(redop) << " " << ranks;
        }
}

TEST(Checker, CountsEachCorruptElement) {
  for (const auto dtype : all_dtypes)
    for (const auto redop : all_redops) {
      const Job job{Operation::all_reduce, dtype, redop, 0, 3};
      auto output = reduce(job, 1, shuffled_ranks(3, 0));
      const std::size_t size = beeline_dtype_bytes(dtype);
      // The most significant byte, so that the change exceeds any tolerance.
      output[17 * size + size - 1] ^= std::byte{0x40};
      EXPECT_EQ(count_wrong(job, 0, 1, 0, output), 1u) << name(dtype) << " " << name(redop);
      output[1299 * size + size - 1] ^= std::byte{0x40};
      EXPECT_EQ(count_wrong(job, 0, 1, 0, output), 2u) << name(dtype) << " " << name(redop);
    }
}

TEST(Checker, NoticesTheLastBitOfASum) {
  for (const auto dtype : all_dtypes) {
    const Job job{Operation::all_reduce, dtype, BEELINE_SUM, 0, 4};
    auto output = reduce(job, 1, shuffled_ranks(4, 0));
    output[0] ^= std::byte{1};
    EXPECT_EQ(count_wrong(job, 0, 1, 0, output), 1u) << name(dtype);
  }
}

TEST(Checker, NoticesAMissingADoubledAndAStaleContribution) {
  for (const auto dtype : all_dtypes) {
    const Job job{Operation::all_reduce, dtype, BEELINE_SUM, 0, 4};
    EXPECT_GT(count_wrong(job, 0, 2, 0, reduce(job, 2, {0, 1, 2})), elements / 2) << name(dtype);
    EXPECT_GT(count_wrong(job, 0, 2, 0, reduce(job, 2, {0, 1, 2, 2})), elements / 2) << name(dtype);
    EXPECT_GT(count_wrong(job, 0, 3, 0, reduce(job, 2, {0, 1, 2, 3})), elements / 2) << name(dtype);
    EXPECT_GT(count_wrong(job, 0, 2, 1, reduce(job, 2, {0, 1, 2, 3})), elements / 2)
        << name(dtype) << ", shifted by one";
  }
}

TEST(Checker, KnowsMovedDataByRankIndexAndIteration) {
  for (const auto operation : {Operation::all_gather, Operation::broadcast})
    for (const auto dtype : all_dtypes) {
      const Job job{operation, dtype, BEELINE_SUM, 0, 4};
      auto output = filled(job, 2, 9, 100);
      EXPECT_EQ(count_wrong(job, 2, 9, 100, output), 0u);
      EXPECT_GT(count_wrong(job, 1, 9, 100, output), elements * 9 / 10);
      EXPECT_GT(count_wrong(job, 2, 8, 100, output), elements * 9 / 10);
      EXPECT_GT(count_wrong(job, 2, 9, 101, output), elements * 9 / 10);
      output.back() ^= std::byte{1};
      EXPECT_EQ(count_wrong(job, 2, 9, 100, output), 1u);
    }
}

TEST(Checker, PoisonIsWrong) {
  for (const auto operation : {Operation::all_reduce, Operation::all_gather})
    for (const auto dtype : all_dtypes) {
      const Job job{operation, dtype, BEELINE_SUM, 0, 4};
      std::vector<std::byte> output(elements * beeline_dtype_bytes(dtype));
      poison(output);
      EXPECT_GT(count_wrong(job, 0, 1, 0, output), elements * 9 / 10) << name(dtype);
    }
}

TEST(Checker, SaysWhereItCannotCheck) {
  EXPECT_FALSE(check_is_possible({Operation::all_reduce, BEELINE_BFLOAT16, BEELINE_SUM, 0, 257}).has_value());
  EXPECT_FALSE(check_is_possible({Operation::all_reduce, BEELINE_UINT8, BEELINE_SUM, 0, 256}).has_value());
  EXPECT_TRUE(check_is_possible({Operation::all_gather, BEELINE_UINT8, BEELINE_SUM, 0, 1000}).has_value());
}

}  // namespace
}  // namespace beeline::bench
