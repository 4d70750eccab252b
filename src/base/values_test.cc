// Ids, addresses, byte order, randomness, results: the small values everything uses.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>

#include "base/address.h"
#include "base/bytes.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/random.h"
#include "base/result.h"
#include "base/time.h"

namespace beeline {
namespace {

TEST(Psn, ComparesInAWindowAroundTheWrap) {
  const Psn last{0xFFFFFF};
  EXPECT_EQ((last + 1).value, 0u);
  EXPECT_EQ((Psn{0} - 1).value, 0xFFFFFFu);
  EXPECT_TRUE(before(last, Psn{0}));
  EXPECT_FALSE(before(Psn{0}, last));
  EXPECT_EQ(distance(Psn{5}, last), 6);
  EXPECT_EQ(distance(last, Psn{5}), -6);
  EXPECT_EQ(distance(Psn{0x7FFFFF}, Psn{0}), 0x7FFFFF);
  EXPECT_EQ(distance(Psn{0x800000}, Psn{0}), -0x800000);
}

TEST(Psn, DistanceUndoesAdditionForEveryStep) {
  Prng random(1);
  for (int i = 0; i < 10000; ++i) {
    const Psn start{static_cast<std::uint32_t>(random.below(1u << 24))};
    const auto step = static_cast<std::uint32_t>(random.below(1u << 23));
    EXPECT_EQ(distance(start + step, start), static_cast<std::int32_t>(step));
    EXPECT_EQ((start + step) - step, start);
  }
}

TEST(Bytes, NetworkOrderRoundTrips) {
  std::array<std::byte, 8> buffer{};
  store_be64(buffer.data(), 0x0102030405060708u);
  EXPECT_EQ(load_u8(buffer.data()), 1);
  EXPECT_EQ(load_be16(buffer.data()), 0x0102);
  EXPECT_EQ(load_be24(buffer.data()), 0x010203u);
  EXPECT_EQ(load_be32(buffer.data() + 4), 0x05060708u);
  EXPECT_EQ(load_be64(buffer.data()), 0x0102030405060708u);
}

TEST(Address, ParsesAndPrintsBothFamilies) {
  for (const char* text : {"10.0.0.1", "127.0.0.1", "::1", "fe80::1", "2001:db8::2"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(to_string(*address), text);
  }
  for (const char* text : {"", "10.0.0", "10.0.0.256", "example", "::1::"})
    EXPECT_FALSE(parse_address(text)) << text;
}

TEST(Address, KindsAreTold) {
  EXPECT_TRUE(parse_address("10.0.0.1")->is_v4());
  EXPECT_FALSE(parse_address("::1")->is_v4());
  EXPECT_TRUE(parse_address("::1")->is_loopback());
  EXPECT_TRUE(parse_address("127.9.9.9")->is_loopback());
  EXPECT_TRUE(parse_address("169.254.1.1")->is_link_local());
  EXPECT_TRUE(parse_address("fe80::1")->is_link_local());
  EXPECT_FALSE(parse_address("fec0::1")->is_link_local());
  EXPECT_EQ(gid_string(IpAddress::v4(10, 0, 0, 1)), "0000:0000:0000:0000:0000:ffff:0a00:0001");
}

TEST(Prng, TheSameSeedGivesTheSameSequence) {
  Prng a(7), b(7), c(8);
  EXPECT_EQ(a.next(), b.next());
  EXPECT_NE(a.next(), c.next());
  int hits = 0;
  for (int i = 0; i < 10000; ++i) hits += a.chance(0.2) ? 1 : 0;
  EXPECT_GT(hits, 1700);
  EXPECT_LT(hits, 2300);
}

TEST(SecureRandom, DoesNotRepeat) { EXPECT_NE(secure_random(), secure_random()); }

Result<int> half(int value) {
  if (value % 2 != 0) return fail(Errc::invalid_argument, "{} is odd", value);
  return value / 2;
}
Result<int> quarter(int value) {
  BEELINE_TRY(const int once, half(value));
  BEELINE_TRY(const int twice, half(once));
  return twice;
}

TEST(Result, TryHandsErrorsUpAndValuesOn) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().message, "3 is odd");
}

TEST(Result, SystemErrorsKeepTheirMeaning) {
  EXPECT_EQ(Result<void>(fail_errno(EADDRINUSE, "bind")).error().code, Errc::in_use);
  EXPECT_EQ(Result<void>(fail_errno(EPERM, "socket")).error().message, "socket: Operation not permitted");
  for (int code = 0; code <= static_cast<int>(Errc::internal); ++code)
    EXPECT_NE(name(static_cast<Errc>(code)), "unknown error");
}

TEST(Log, KnowsItsLevels) {
  EXPECT_TRUE(set_log_level("off"));
  EXPECT_FALSE(set_log_level("shouting"));
  EXPECT_TRUE(set_log_level("warning"));
}

TEST(Time, PointsAndDurationsDoNotMix) {
  const TimePoint start{1000};
  EXPECT_EQ((start + 5us).ns, 6000);
  EXPECT_EQ((start + 5us) - start, 5us);
  EXPECT_LT(start, TimePoint::never());
}

}  // namespace
}  // namespace beeline
