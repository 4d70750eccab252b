#include "exec/connections/hello.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"

namespace beeline::exec {
namespace {

const Terms terms{.size = 3, .communicator = 77, .piece_bytes = 4096};

Hello example() {
  Hello hello{.rank = Rank{1}, .terms = terms, .addresses = {}};
  for (std::uint32_t i = 0; i < 3; ++i)
    hello.addresses.push_back(
        {.qpn = 0x11 + i, .psn = 0xABCDEF, .gid = Gid::v4(10, 0, 0, 1), .mtu_bytes = 4096});
  hello.addresses[1] = {};  // its own
  return hello;
}

TEST(Hello, ComesBackAsItWas) {
  const auto decoded = decode_hello(encode(example()), Rank{1}, terms);
  ASSERT_TRUE(decoded) << decoded.error().message;
  ASSERT_EQ(decoded->addresses.size(), 3u);
  EXPECT_EQ(decoded->addresses[2].qpn, 0x13u);
  EXPECT_EQ(decoded->addresses[2].psn, 0xABCDEFu);
  EXPECT_EQ(decoded->addresses[2].mtu_bytes, 4096u);
  EXPECT_EQ(decoded->addresses[2].gid, Gid::v4(10, 0, 0, 1));
}

TEST(Hello, OfAnotherRankOrGroupIsRefused) {
  EXPECT_FALSE(decode_hello(encode(example()), Rank{2}, terms));
  for (const auto change : {+[](Terms& t) { t.size = 4; }, +[](Terms& t) { t.communicator = 78; },
                            +[](Terms& t) { t.piece_bytes = 8; }}) {
    Terms ours = terms;
    change(ours);
    EXPECT_FALSE(decode_hello(encode(example()), Rank{1}, ours));
  }
}

TEST(Hello, WithAnImpossibleAddressIsRefused) {
  for (const auto change :
       {+[](verbs::QpAddress& a) { a.qpn = 0; }, +[](verbs::QpAddress& a) { a.qpn = 0x1000000; },
        +[](verbs::QpAddress& a) { a.psn = 0x1000000; }, +[](verbs::QpAddress& a) { a.mtu_bytes = 1500; },
        +[](verbs::QpAddress& a) { a.gid = {}; }}) {
    Hello hello = example();
    change(hello.addresses[0]);
    const auto decoded = decode_hello(encode(hello), Rank{1}, terms);
    ASSERT_FALSE(decoded);
    EXPECT_THAT(decoded.error().message, ::testing::HasSubstr("impossible address"));
  }
}

TEST(Hello, CutOrGarbledNeverCrashes) {
  const auto whole = encode(example());
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_FALSE(decode_hello(Bytes(whole).first(bytes), Rank{1}, terms));
  Prng random(3);
  for (int i = 0; i < 2000; ++i) {
    auto garbled = whole;
    garbled[random.below(garbled.size())] ^= std::byte{static_cast<std::uint8_t>(1 + random.below(255))};
    const auto decoded = decode_hello(garbled, Rank{1}, terms);
    if (!decoded) continue;
    EXPECT_LE(decoded->addresses[0].psn, 0xFFFFFFu);
    EXPECT_LE(decoded->addresses[2].psn, 0xFFFFFFu);
  }
}

}  // namespace
}  // namespace beeline::exec
