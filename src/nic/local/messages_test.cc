#include "nic/local/messages.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace beeline::nic::local {
namespace {

Message an_ask() {
  Message ask;
  ask.kind = Kind::ask;
  ask.id = 0x0102030405060708;
  ask.from = Qpn{0x110203};
  ask.to = Qpn{0x120405};
  ask.from_gid = IpAddress::v4(10, 0, 0, 1);
  ask.to_gid = IpAddress::v4(10, 0, 0, 2);
  ask.first_psn = Psn{0xFFFFFE};
  ask.expected_psn = Psn{7};
  return ask;
}

TEST(LaneMessages, ComeOutAsTheyWentIn) {
  const auto ask = decode(encode(an_ask()));
  ASSERT_TRUE(ask);
  EXPECT_EQ(ask->kind, Kind::ask);
  EXPECT_EQ(ask->id, an_ask().id);
  EXPECT_EQ(ask->from, an_ask().from);
  EXPECT_EQ(ask->to, an_ask().to);
  EXPECT_EQ(ask->from_gid, an_ask().from_gid);
  EXPECT_EQ(ask->to_gid, an_ask().to_gid);
  EXPECT_EQ(ask->first_psn, an_ask().first_psn);
  EXPECT_EQ(ask->expected_psn, an_ask().expected_psn);
  Message grant;
  grant.kind = Kind::grant;
  grant.key = Key{0xA1B2C3D4};
  grant.offset = 4096;
  grant.bytes = 100;
  grant.memory_bytes = 8192;
  const auto granted = decode(encode(grant));
  ASSERT_TRUE(granted);
  EXPECT_EQ(granted->key, grant.key);
  EXPECT_EQ(granted->offset, 4096u);
  EXPECT_EQ(granted->bytes, 100u);
  EXPECT_EQ(granted->memory_bytes, 8192u);
  Message answer;
  answer.kind = Kind::answer;
  answer.verdict = Verdict::crossed;
  EXPECT_EQ(decode(encode(answer))->verdict, Verdict::crossed);
}

TEST(LaneMessages, OfAnotherVersionSizeOrKindAreRefused) {
  const MessageBytes good = encode(an_ask());
  EXPECT_FALSE(decode(Bytes(good).first(message_bytes - 1)));
  EXPECT_FALSE(decode(Bytes{}));
  for (const auto& [place, value] : {std::pair{0, 0}, {4, 1}, {5, 0}, {5, 7}, {6, 1}}) {
    MessageBytes bad = good;
    bad[static_cast<std::size_t>(place)] = std::byte{static_cast<std::uint8_t>(value)};
    EXPECT_FALSE(decode(bad)) << place << " " << value;
  }
  Message answer;
  answer.kind = Kind::answer;
  EXPECT_FALSE(decode(encode(answer))) << "an answer has a verdict";
}

// What a grant may hold is the lane's to judge: here, nothing is lost, and a part of one is none.
TEST(LaneMessages, WantsAndGrantsOfAnyNumbersComeOutWholeOrNotAtAll) {
  Prng random(20);
  for (int round = 0; round < 500; ++round) {
    Message message;
    message.kind = round % 2 == 0 ? Kind::want : Kind::grant;
    message.id = random.next();
    message.key = Key{static_cast<std::uint32_t>(random.next())};
    message.address = random.next();
    message.offset = random.next();
    message.bytes = random.next();
    message.memory_bytes = random.next();
    const MessageBytes bytes = encode(message);
    const auto decoded = decode(bytes);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->kind, message.kind);
    EXPECT_EQ(decoded->id, message.id);
    EXPECT_EQ(decoded->key, message.key);
    EXPECT_EQ(decoded->address, message.address);
    EXPECT_EQ(decoded->offset, message.offset);
    EXPECT_EQ(decoded->bytes, message.bytes);
    EXPECT_EQ(decoded->memory_bytes, message.memory_bytes);
    for (std::size_t size = 0; size < message_bytes; ++size) ASSERT_FALSE(decode(Bytes(bytes).first(size)));
  }
}

}  // namespace
}  // namespace beeline::nic::local
