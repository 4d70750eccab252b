#include "perf/message.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace beeline::perf {
namespace {

Hello some_hello() {
  Options options;
  options.test = find_test("read_bw");
  options.queue_pairs = 3;
  options.check = true;
  options.duration_s = 2.5;
  return {make_plan(options).value()};
}

EndpointInfo some_endpoint() {
  return {Gid::v4(10, 0, 0, 7),
          1024,
          16,
          {{0x11, 0xABCDEF, 0x1234, 0x7F0000001000, 0x7F0000002000}, {0x12, 1, 2, 3, 4}}};
}

TEST(Messages, RoundTrip) {
  const auto hello = decode_hello(encode(some_hello()));
  ASSERT_TRUE(hello) << hello.error().message;
  EXPECT_STREQ(hello->plan.test->name.data(), "read_bw");
  EXPECT_EQ(hello->plan.queue_pairs, 3u);
  EXPECT_EQ(hello->plan.iterations, 0u);
  EXPECT_EQ(hello->plan.duration, 2500ms);
  EXPECT_TRUE(hello->plan.check);
  EXPECT_FALSE(hello->plan.bidirectional);

  const auto endpoint = decode_endpoint(encode(some_endpoint()));
  ASSERT_TRUE(endpoint);
  EXPECT_EQ(endpoint->gid, Gid::v4(10, 0, 0, 7));
  ASSERT_EQ(endpoint->queue_pairs.size(), 2u);
  EXPECT_EQ(endpoint->queue_pairs[0].sink, 0x7F0000002000u);
  EXPECT_EQ(endpoint->queue_pairs[0].psn, 0xABCDEFu);

  EXPECT_TRUE(decode_ready(encode(Ready{true}))->data_in_order);
  EXPECT_EQ(decode_round(encode(Round{5, 6, 7, 8ns}))->first_iteration, 6u);
  EXPECT_EQ(decode_finished(encode(Finished{5, 6, {7, 8}}))->per_queue_pair[1], 8u);
  EXPECT_EQ(decode_verdict(encode(Verdict{5, 6, "there"}))->first, "there");
}

template <class Decode>
void expect_no_prefix_decodes(const Message& whole, Decode decode) {
  ASSERT_TRUE(decode(whole));
  for (std::size_t bytes = 0; bytes < whole.payload.size(); ++bytes) {
    Message cut = whole;
    cut.payload.resize(bytes);
    EXPECT_FALSE(decode(cut)) << bytes << " of " << whole.payload.size();
  }
  Message longer = whole;
  longer.payload.push_back(std::byte{0});
  EXPECT_FALSE(decode(longer)) << "a byte too many";
}

TEST(Messages, WrongLengthsAreRefused) {
  expect_no_prefix_decodes(encode(some_hello()), decode_hello);
  expect_no_prefix_decodes(encode(some_endpoint()), decode_endpoint);
  expect_no_prefix_decodes(encode(Ready{true}), decode_ready);
  expect_no_prefix_decodes(encode(Round{5, 6, 7, 8ns}), decode_round);
  expect_no_prefix_decodes(encode(Finished{5, 6, {7, 8}}), decode_finished);
  expect_no_prefix_decodes(encode(Verdict{5, 6, "there"}), decode_verdict);
}

TEST(Messages, CountsThatPromiseMoreThanThereIsCostNothing) {
  Message message = encode(Finished{1, 2, {}});
  store_be32(message.payload.data() + 16, 0xFFFFFFFF);
  EXPECT_FALSE(decode_finished(message));
}

TEST(Messages, ForeignersAndOtherVersionsAreTold) {
  Message stranger = encode(some_hello());
  stranger.payload[0] ^= std::byte{1};
  EXPECT_NE(decode_hello(stranger).error().message.find("not `beeline perf`"), std::string::npos);
  Message newer = encode(some_hello());
  store_be32(newer.payload.data() + 8, 99);
  EXPECT_NE(decode_hello(newer).error().message.find("version 99"), std::string::npos);
}

TEST(Messages, APeersPlanIsHeldAgainstTheRules) {
  Hello hello = some_hello();
  hello.plan.queue_pairs = 1u << 30;
  EXPECT_FALSE(decode_hello(encode(hello)));
  hello = some_hello();
  hello.plan.duration = Duration{-1};
  EXPECT_FALSE(decode_hello(encode(hello)));
}

TEST(Messages, FailureTextIsPrintableAndBounded) {
  EXPECT_EQ(decode_failure(encode_failure("no\x1b[31m way\n")), "no?[31m way?");
  EXPECT_LE(decode_failure(encode_failure(std::string(100000, 'x'))).size(), 1024u);
  EXPECT_EQ(decode_failure({MessageType::failure, {}}), "it failed without saying why");
}

TEST(Messages, RandomBytesNeverPassForAPlan) {
  Prng prng(3);
  for (int i = 0; i < 2000; ++i) {
    Message message{MessageType::hello, std::vector<std::byte>(prng.below(120))};
    for (std::byte& byte : message.payload) byte = std::byte(static_cast<unsigned char>(prng.next()));
    EXPECT_FALSE(decode_hello(message));
    // These have no magic: they may decode, they must not read past the end.
    static_cast<void>(decode_endpoint(message));
    static_cast<void>(decode_finished(message));
    static_cast<void>(decode_verdict(message));
  }
}

}  // namespace
}  // namespace beeline::perf
