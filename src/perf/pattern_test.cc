#include "perf/pattern.h"

#include <gtest/gtest.h>

#include <vector>

namespace beeline::perf {
namespace {

constexpr PatternKey key{.iteration = 41, .queue_pair = 3, .from_server = true};

std::vector<std::byte> filled(std::size_t bytes, const PatternKey& with) {
  std::vector<std::byte> buffer(bytes);
  fill_pattern(buffer, with);
  return buffer;
}

TEST(Pattern, IsAcceptedAtEveryLength) {
  for (std::size_t bytes = 0; bytes < 40; ++bytes)
    EXPECT_EQ(check_pattern(filled(bytes, key), key).wrong_bytes, 0u);
}

TEST(Pattern, EveryFlippedBitIsFound) {
  auto buffer = filled(37, key);
  for (std::size_t at = 0; at < buffer.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      buffer[at] ^= std::byte(1 << bit);
      const PatternDamage damage = check_pattern(buffer, key);
      EXPECT_EQ(damage.wrong_bytes, 1u);
      EXPECT_EQ(damage.first_offset, at);
      buffer[at] ^= std::byte(1 << bit);
    }
}

TEST(Pattern, DependsOnEverythingThatIdentifiesAMessage) {
  const auto buffer = filled(4096, key);
  for (const PatternKey other : {PatternKey{42, 3, true}, PatternKey{41, 2, true}, PatternKey{41, 3, false}})
    EXPECT_GT(check_pattern(buffer, other).wrong_bytes, 3900u);
  auto shifted = buffer;
  shifted.erase(shifted.begin(), shifted.begin() + 8);
  EXPECT_GT(check_pattern(shifted, key).wrong_bytes, 3900u) << "data at the wrong offset";
}

TEST(Pattern, PoisonIsWrongInEveryByte) {
  std::vector<std::byte> buffer(1000);
  fill_poison(buffer, key);
  EXPECT_EQ(check_pattern(buffer, key).wrong_bytes, 1000u);
}

}  // namespace
}  // namespace beeline::perf
