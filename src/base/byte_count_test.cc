#include "base/byte_count.h"

#include <gtest/gtest.h>

namespace beeline {
namespace {

TEST(ByteCount, TakesUnitsOfEitherCase) {
  EXPECT_EQ(parse_byte_count("0"), 0u);
  EXPECT_EQ(parse_byte_count("65536"), 65536u);
  EXPECT_EQ(parse_byte_count("64K"), 65536u);
  EXPECT_EQ(parse_byte_count("8m"), 8u << 20);
  EXPECT_EQ(parse_byte_count("3G"), std::uint64_t{3} << 30);
  EXPECT_EQ(parse_byte_count("18446744073709551615"), UINT64_MAX);
}

TEST(ByteCount, IsNothingForAnythingElse) {
  for (const char* text :
       {"", "K", "-1", "1.5K", "64KB", "64 K", "64T", "18446744073709551616", "17179869184G"})
    EXPECT_FALSE(parse_byte_count(text)) << text;
}

}  // namespace
}  // namespace beeline
