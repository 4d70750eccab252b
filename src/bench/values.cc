#include "bench/values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/random.h"

namespace beeline::bench {
namespace {

constexpr std::size_t batch = 512;  // elements computed at a time: they stay in the first-level cache
using Batch = std::array<std::int64_t, batch>;

// The finalizer of MurmurHash3 (Austin Appleby, public domain): all input bits reach all output bits,
// and compilers vectorize it.
constexpr std::uint32_t mix(std::uint32_t h) {
  h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
  h = (h ^ (h >> 13)) * 0xC2B2AE35u;
  return h ^ (h >> 16);
}

std::uint32_t seed_of(int rank, std::uint64_t iteration) {
  return static_cast<std::uint32_t>(Prng(iteration * 0x10001u + static_cast<std::uint32_t>(rank)).next());
}

// The whole numbers that one rank contributes: least … least+range-1, times scale.
struct Numbers {
  std::int64_t least = 0;
  std::uint32_t range = 1;
  std::int64_t scale = 1;
};

Numbers numbers_for(const Job& job) {
  const auto around_zero = [](std::int64_t most, std::int64_t scale = 1) {
    return Numbers{-most, static_cast<std::uint32_t>(2 * most + 1), scale};
  };
  switch (job.dtype) {
    case BEELINE_FLOAT32:
      return around_zero((1 << 24) / job.ranks);
    case BEELINE_BFLOAT16:
      return around_zero(256 / job.ranks);
    case BEELINE_INT32:
      return around_zero((1 << 30) / job.ranks);
    case BEELINE_INT64:
      return around_zero((1 << 30) / job.ranks, 0x1'0000'0001);  // both halves matter
    case BEELINE_UINT8:
      return Numbers{0, static_cast<std::uint32_t>(255 / job.ranks + 1), 1};
  }
  return {};
}

void contribution(const Numbers& numbers, std::uint32_t seed, std::size_t first, std::size_t count,
                  Batch& out) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t random = mix(static_cast<std::uint32_t>(first + i) * 0x9E3779B9u + seed);
    const auto below = static_cast<std::int64_t>((std::uint64_t{random} * numbers.range) >> 32);
    out[i] = (numbers.least + below) * numbers.scale;
  }
}

struct BFloat16 {
  std::uint16_t bits;
};

// Nearest, ties to even (IEEE 754); no infinities or NaNs come here.
BFloat16 to_bfloat16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  bits += 0x7FFF + ((bits >> 16) & 1);
  return {static_cast<std::uint16_t>(bits >> 16)};
}

float to_float(BFloat16 value) {
  const std::uint32_t bits = std::uint32_t{value.bits} << 16;
  float out = 0;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

template <class T>
T converted(std::int64_t value) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return to_bfloat16(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

// Is `got` the average sum/ranks? `exact`: the division has one right answer in the type.
template <class T>
bool is_average(T got, std::int64_t sum, int ranks, bool exact) {
  if constexpr (std::is_integral_v<T>) {
    return got == static_cast<T>(sum / ranks);
  } else if constexpr (std::is_same_v<T, float>) {
    const auto want = static_cast<float>(static_cast<double>(sum) / ranks);
    return got == want ||
           (!exact && (got == std::nextafter(want, HUGE_VALF) || got == std::nextafter(want, -HUGE_VALF)));
  } else {
    const float want = to_float(to_bfloat16(static_cast<float>(sum) / static_cast<float>(ranks)));
    return to_float(got) == want || (!exact && std::abs(to_float(got) - want) <= std::abs(want) / 128);
  }
}

template <class T>
bool equal(T got, std::int64_t want) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return to_float(got) == static_cast<float>(want);
  else
    return got == static_cast<T>(want);
}

// The sum over all ranks, or their maximum.
void expected(const Job& job, std::uint64_t iteration, std::size_t first, std::size_t count, Batch& out) {
  const Numbers numbers = numbers_for(job);
  contribution(numbers, seed_of(0, iteration), first, count, out);
  Batch other{};
  for (int rank = 1; rank < job.ranks; ++rank) {
    contribution(numbers, seed_of(rank, iteration), first, count, other);
    for (std::size_t i = 0; i < count; ++i)
      out[i] = job.redop == BEELINE_MAX ? std::max(out[i], other[i]) : out[i] + other[i];
  }
}

template <class T>
std::uint64_t count_wrong_reduced(const Job& job, std::uint64_t iteration, std::size_t first, Bytes output) {
  const bool power_of_two = (job.ranks & (job.ranks - 1)) == 0;
  std::uint64_t wrong = 0;
  Batch want{};
  const std::size_t total = output.size() / sizeof(T);
  for (std::size_t begin = 0; begin < total; begin += batch) {
    const std::size_t count = std::min(batch, total - begin);
    expected(job, iteration, first + begin, count, want);
    for (std::size_t i = 0; i < count; ++i) {
      T got;
      std::memcpy(&got, output.data() + (begin + i) * sizeof(T), sizeof got);
      const bool right =
          job.redop == BEELINE_AVG ? is_average(got, want[i], job.ranks, power_of_two) : equal(got, want[i]);
      wrong += right ? 0 : 1;
    }
  }
  return wrong;
}

template <class T>
void fill_numbers(const Job& job, int rank, std::uint64_t iteration, std::size_t first, MutableBytes out) {
  Batch values{};
  const std::size_t total = out.size() / sizeof(T);
  for (std::size_t begin = 0; begin < total; begin += batch) {
    const std::size_t count = std::min(batch, total - begin);
    contribution(numbers_for(job), seed_of(rank, iteration), first + begin, count, values);
    for (std::size_t i = 0; i < count; ++i) {
      const T value = converted<T>(values[i]);
      std::memcpy(out.data() + (begin + i) * sizeof(T), &value, sizeof value);
    }
  }
}

// Random bits of one element of data that is only moved.
template <class T>
T bits_at(std::uint32_t seed, std::size_t index) {
  const auto low = mix(static_cast<std::uint32_t>(index) * 0x9E3779B9u + seed);
  if constexpr (sizeof(T) == 8)
    return std::uint64_t{mix(low + 0x7F4A7C15u)} << 32 | low;
  else
    return static_cast<T>(low);
}

template <class T>
void fill_bits(std::uint32_t seed, std::size_t first, MutableBytes out) {
  for (std::size_t i = 0; i < out.size() / sizeof(T); ++i) {
    const T value = bits_at<T>(seed, first + i);
    std::memcpy(out.data() + i * sizeof(T), &value, sizeof value);
  }
}

template <class T>
std::uint64_t count_wrong_bits(std::uint32_t seed, std::size_t first, Bytes output) {
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < output.size() / sizeof(T); ++i) {
    T got;
    std::memcpy(&got, output.data() + i * sizeof(T), sizeof got);
    wrong += got == bits_at<T>(seed, first + i) ? 0 : 1;
  }
  return wrong;
}

// Calls visit with a null pointer to the C++ type of a dtype.
template <class Visit>
auto with_type(beeline_dtype dtype, Visit visit) {
  switch (dtype) {
    case BEELINE_FLOAT32:
      return visit(static_cast<float*>(nullptr));
    case BEELINE_BFLOAT16:
      return visit(static_cast<BFloat16*>(nullptr));
    case BEELINE_INT32:
      return visit(static_cast<std::int32_t*>(nullptr));
    case BEELINE_INT64:
      return visit(static_cast<std::int64_t*>(nullptr));
    case BEELINE_UINT8:
      break;
  }
  return visit(static_cast<std::uint8_t*>(nullptr));
}

template <class Visit>
auto with_width(beeline_dtype dtype, Visit visit) {
  switch (beeline_dtype_bytes(dtype)) {
    case 8:
      return visit(std::uint64_t{});
    case 4:
      return visit(std::uint32_t{});
    case 2:
      return visit(std::uint16_t{});
    default:
      return visit(std::uint8_t{});
  }
}

}  // namespace

Result<void> check_is_possible(const Job& job) {
  const int most = job.dtype == BEELINE_BFLOAT16 ? 256 : job.dtype == BEELINE_UINT8 ? 255 : 1 << 20;
  if (job.reduces() && job.ranks > most)
    return fail(Errc::unsupported, "sums over {} ranks are not exact in {}: give -c 0, or another type",
                job.ranks, name(job.dtype));
  return {};
}

void fill(const Job& job, int rank, std::uint64_t iteration, std::size_t first, MutableBytes out) {
  if (job.reduces())
    with_type(job.dtype, [&]<class T>(T*) { fill_numbers<T>(job, rank, iteration, first, out); });
  else
    with_width(job.dtype, [&]<class T>(T) { fill_bits<T>(seed_of(rank, iteration), first, out); });
}

void poison(MutableBytes out) {
  // NaN in float types, -1 in signed ones.
  if (!out.empty()) std::memset(out.data(), 0xFF, out.size());
}

std::uint64_t count_wrong(const Job& job, int source, std::uint64_t iteration, std::size_t first,
                          Bytes output) {
  if (job.reduces())
    return with_type(job.dtype,
                     [&]<class T>(T*) { return count_wrong_reduced<T>(job, iteration, first, output); });
  return with_width(
      job.dtype, [&]<class T>(T) { return count_wrong_bits<T>(seed_of(source, iteration), first, output); });
}

}  // namespace beeline::bench
