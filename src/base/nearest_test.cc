#include "base/nearest.h"

#include <gtest/gtest.h>

#include <array>

namespace beeline {
namespace {

constexpr std::array<std::string_view, 4> names = {"all_reduce", "reduce_scatter", "all_gather", "broadcast"};

TEST(Nearest, IsWhatWasMistyped) {
  EXPECT_EQ(nearest("allreduce", names), "all_reduce");
  EXPECT_EQ(nearest("all-gather", names), "all_gather");
  EXPECT_EQ(nearest("broadcats", names), "broadcast");
  EXPECT_EQ(nearest("reducescatter", names), "reduce_scatter");
  EXPECT_EQ(did_you_mean("allreduce", names), "; did you mean all_reduce?");
}

TEST(Nearest, IsNothingForAnotherWord) {
  for (const std::string_view word : {"", "x", "dance", "send_bw", "all_to_all_v"}) {
    EXPECT_EQ(nearest(word, names), "") << word;
    EXPECT_EQ(did_you_mean(word, names), "") << word;
  }
  EXPECT_EQ(nearest(std::string(100000, 'a'), names), "");
  EXPECT_EQ(nearest("broadcast", {}), "");
}

}  // namespace
}  // namespace beeline
