// Every kernel against a plain loop: all types, operations, lengths around the vector
// sizes, misalignments and aliasings.
#include "exec/kernels/kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "base/random.h"

namespace beeline::exec {
namespace {

constexpr DType all_dtypes[] = {DType::float32, DType::bfloat16, DType::int32, DType::int64, DType::uint8};
constexpr RedOp all_ops[] = {RedOp::sum, RedOp::max, RedOp::avg};

// ---- the reference

float widen(std::uint16_t half) {
  const std::uint32_t bits = std::uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
// The nearest bfloat16 by trying both neighbours, so that it shares no trick with the kernel.
std::uint16_t narrow(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const auto down = static_cast<std::uint16_t>(bits >> 16);
  if (std::isnan(value)) return static_cast<std::uint16_t>(down | 0x40);
  if (std::isinf(value) || widen(down) == value) return down;
  const auto up = static_cast<std::uint16_t>(down + 1);  // away from zero
  // The step is measured below, where infinity is not in the way.
  const double half_step = (std::abs(static_cast<double>(widen(down))) -
                            std::abs(static_cast<double>(widen(static_cast<std::uint16_t>(down - 1))))) /
                           2;
  const double step =
      (down & 0x7F) != 0 ? half_step * 2 : std::ldexp(1.0, std::max(((down >> 7) & 0xFF), 1) - 127 - 7);
  const double above = std::abs(static_cast<double>(value)) - std::abs(static_cast<double>(widen(down)));
  if (above * 2 == step) return (down & 1) != 0 ? up : down;
  return above * 2 > step ? up : down;
}

float max_of(float a, float b) { return std::isnan(a) || a > b ? a : b; }
template <class T>
T max_of(T a, T b) {
  return a > b ? a : b;
}

template <class T>
T reference(RedOp op, T a, T b) {
  if (op == RedOp::max) return max_of(a, b);
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return a + b;
  }
}

template <class T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

void reference_element(DType dtype, RedOp op, const std::byte* a, const std::byte* b, std::byte* out) {
  switch (dtype) {
    case DType::float32:
      return put(out, reference(op, get<float>(a), get<float>(b)));
    case DType::bfloat16:
      return put(out, narrow(reference(op, widen(get<std::uint16_t>(a)), widen(get<std::uint16_t>(b)))));
    case DType::int32:
      return put(out, reference(op, get<std::int32_t>(a), get<std::int32_t>(b)));
    case DType::int64:
      return put(out, reference(op, get<std::int64_t>(a), get<std::int64_t>(b)));
    case DType::uint8:
      return put(out, reference(op, get<std::uint8_t>(a), get<std::uint8_t>(b)));
  }
}
void reference_divide(DType dtype, std::byte* x, int n) {
  switch (dtype) {
    case DType::float32:
      return put(x, get<float>(x) / static_cast<float>(n));
    case DType::bfloat16:
      return put(x, narrow(widen(get<std::uint16_t>(x)) / static_cast<float>(n)));
    case DType::int32:
      return put(x, static_cast<std::int32_t>(std::int64_t{get<std::int32_t>(x)} / n));
    case DType::int64:
      return put(x, get<std::int64_t>(x) / n);
    case DType::uint8:
      return put(x, static_cast<std::uint8_t>(get<std::uint8_t>(x) / n));
  }
}

// ---- comparison and data

bool same(DType dtype, const std::byte* x, const std::byte* y) {
  if (dtype == DType::float32 && std::isnan(get<float>(x))) return std::isnan(get<float>(y));
  if (dtype == DType::bfloat16 && std::isnan(widen(get<std::uint16_t>(x))))
    return std::isnan(widen(get<std::uint16_t>(y)));
  return std::memcmp(x, y, element_bytes(dtype)) == 0;
}

// Mostly plain numbers, some random bits (so NaN, infinities, denormals, extremes).
void fill(DType dtype, Prng& random, std::byte* to, std::size_t count) {
  const std::uint64_t special[] = {0,
                                   0x8000800080008000u,
                                   0x7F807F807F807F80u,
                                   0xFF80FF80FF80FF80u,
                                   0x7FC17FC17FC17FC1u,
                                   0x7F7FFFFF7F7FFFFFu,
                                   0xFFFFFFFFFFFFFFFFu,
                                   1};
  const std::size_t size = element_bytes(dtype);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = random.next();
    if (random.chance(0.2)) bits = special[random.below(std::size(special))];
    if (dtype == DType::float32 && random.chance(0.6)) {
      const float plain = static_cast<float>(random.below(2001)) / 8 - 125;
      std::memcpy(&bits, &plain, sizeof plain);
    }
    if (dtype == DType::bfloat16 && random.chance(0.6))
      bits = narrow(static_cast<float>(random.below(2001)) / 8 - 125);
    std::memcpy(to + i * size, &bits, size);
  }
}

std::string where(DType dtype, RedOp op, std::size_t count, std::size_t i) {
  return std::string(name(dtype)) + " " + std::string(name(op)) + " length " + std::to_string(count) +
         " element " + std::to_string(i);
}

// Runs `body` once for every instruction set that this processor has.
void on_every_target(const std::function<void()>& body) {
  for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    SCOPED_TRACE(hwy::TargetName(target));
    body();
    hwy::SetSupportedTargetsForTest(0);
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

void check_reduce() {
  Prng random(1);
  enum class Alias { none, a, b };
  for (const DType dtype : all_dtypes)
    for (const RedOp op : all_ops)
      for (std::size_t count = 0; count <= 130; ++count)
        for (const Alias alias : {Alias::none, Alias::a, Alias::b}) {
          const std::size_t size = element_bytes(dtype), offset = random.below(64);
          std::vector<std::byte> a(count * size + 128), b(a.size()), out(a.size(), std::byte{0xAB});
          std::byte *pa = a.data() + random.below(64), *pb = b.data() + offset;
          fill(dtype, random, pa, count);
          fill(dtype, random, pb, count);
          const auto a_before = std::vector(pa, pa + count * size),
                     b_before = std::vector(pb, pb + count * size);
          std::byte* result = alias == Alias::none ? out.data() + 5 : alias == Alias::a ? pa : pb;
          reduce(dtype, op, pa, pb, result, count);
          for (std::size_t i = 0; i < count; ++i) {
            std::byte expected[8];
            reference_element(dtype, op, &a_before[i * size], &b_before[i * size], expected);
            ASSERT_TRUE(same(dtype, expected, result + i * size)) << where(dtype, op, count, i);
          }
          if (alias == Alias::none) {
            ASSERT_EQ(out[4], std::byte{0xAB});
            ASSERT_EQ(out[5 + count * size], std::byte{0xAB}) << "wrote past the end";
          }
        }
}

TEST(Reduce, EqualsThePlainLoop) { on_every_target(check_reduce); }

void check_divide() {
  Prng random(2);
  for (const DType dtype : all_dtypes)
    for (const int divisor : {1, 2, 3, 7, 300})
      for (std::size_t count = 0; count <= 130; ++count) {
        const std::size_t size = element_bytes(dtype), offset = random.below(64);
        std::vector<std::byte> data(count * size + 128, std::byte{0xAB});
        std::byte* p = data.data() + offset;
        fill(dtype, random, p, count);
        auto expected = std::vector(p, p + count * size);
        divide(dtype, p, count, divisor);
        for (std::size_t i = 0; i < count; ++i) {
          if (divisor != 1) reference_divide(dtype, &expected[i * size], divisor);
          ASSERT_TRUE(same(dtype, &expected[i * size], p + i * size)) << where(dtype, RedOp::avg, count, i);
        }
        ASSERT_EQ(p[count * size], std::byte{0xAB}) << "wrote past the end";
      }
}

TEST(Divide, EqualsThePlainLoop) { on_every_target(check_divide); }

// All 65536 halves: what is exact stays, and every NaN stays a NaN.
TEST(Reduce, BFloat16PlusZeroIsItself) {
  std::vector<std::uint16_t> all(65536), zero(65536, 0), sum(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  reduce(DType::bfloat16, RedOp::sum, all.data(), zero.data(), sum.data(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(widen(all[i])))
      ASSERT_TRUE(std::isnan(widen(sum[i]))) << i;
    else
      ASSERT_EQ(widen(sum[i]), widen(all[i])) << i;
  }
}

TEST(Reduce, BFloat16RoundsToNearestEvenAndOverflowsToInfinity) {
  const auto sum = [](float a, float b) {
    const std::uint16_t x = narrow(a), y = narrow(b);
    std::uint16_t out = 0;
    reduce(DType::bfloat16, RedOp::sum, &x, &y, &out, 1);
    return widen(out);
  };
  EXPECT_EQ(sum(256.0f, 1.0f), 256.0f);  // 257 lies between 256 and 258: the even one
  EXPECT_EQ(sum(258.0f, 1.0f), 260.0f);  // 259 between 258 and 260
  EXPECT_EQ(sum(256.0f, 1.5f), 258.0f);  // nearer
  const float largest = widen(0x7F7F);
  EXPECT_EQ(sum(largest, largest), std::numeric_limits<float>::infinity());
}

TEST(Reduce, MaxKeepsNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float a[] = {nan, 1, nan, -0.0f, 0.0f}, b[] = {1, nan, nan, 0.0f, -0.0f};
  float out[5];
  reduce(DType::float32, RedOp::max, a, b, out, 5);
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]) && std::isnan(out[2]));
  EXPECT_FALSE(std::signbit(out[3]));
  EXPECT_TRUE(std::signbit(out[4]));
}

TEST(Reduce, IntegersWrapAround) {
  const std::int32_t a = std::numeric_limits<std::int32_t>::max(), b = 1;
  std::int32_t out = 0;
  reduce(DType::int32, RedOp::sum, &a, &b, &out, 1);
  EXPECT_EQ(out, std::numeric_limits<std::int32_t>::min());
  const std::uint8_t c = 250, d = 10;
  std::uint8_t byte = 0;
  reduce(DType::uint8, RedOp::avg, &c, &d, &byte, 1);
  EXPECT_EQ(byte, 4);
}

}  // namespace
}  // namespace beeline::exec
