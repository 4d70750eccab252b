#include "perf/options.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace beeline::perf {
namespace {

Options options_for(const char* test) {
  Options options;
  options.test = find_test(test);
  return options;
}

TEST(Tests, AreFoundByName) {
  for (const perf::Test& test : all_tests()) EXPECT_EQ(find_test(test.name), &test);
  EXPECT_EQ(all_tests().size(), 6u);
  EXPECT_EQ(find_test("write"), nullptr);
}

TEST(ParseSize, TakesBytesAndUnits) {
  EXPECT_EQ(parse_size("0").value(), 0u);
  EXPECT_EQ(parse_size("65536").value(), 65536u);
  EXPECT_EQ(parse_size("64K").value(), 65536u);
  EXPECT_EQ(parse_size("8m").value(), 8388608u);
  EXPECT_EQ(parse_size("1G").value(), 1073741824u);
}

TEST(ParseSize, RefusesEverythingElse) {
  for (const char* text :
       {"", "-1", "+1", "K", "1KB", "1T", "1 K", "0x10", "1.5K", "99999999999999999999", "99999999999G"})
    EXPECT_FALSE(parse_size(text)) << text;
  EXPECT_NE(parse_size("-1").error().message.find("-s -1"), std::string::npos);
}

TEST(MakePlan, HasPerftestsDefaults) {
  const Plan bandwidth = make_plan(options_for("write_bw")).value();
  EXPECT_EQ(bandwidth.size_bytes, 65536u);
  EXPECT_EQ(bandwidth.iterations, 5000u);
  EXPECT_EQ(bandwidth.tx_depth, 128u);
  const Plan latency = make_plan(options_for("send_lat")).value();
  EXPECT_EQ(latency.size_bytes, 2u);
  EXPECT_EQ(latency.iterations, 1000u);
}

TEST(MakePlan, AllSizesAreThePowersOfTwo) {
  Options options = options_for("read_bw");
  options.all_sizes = true;
  const auto sizes = make_plan(options)->sizes();
  ASSERT_EQ(sizes.size(), 23u);
  EXPECT_EQ(sizes.front(), 2u);
  EXPECT_EQ(sizes.back(), 8388608u);
}

TEST(MakePlan, CheckingNeedsAPlacePerMessageUnderWay) {
  Options options = options_for("write_bw");
  EXPECT_EQ(make_plan(options)->slots(), 1u);
  options.check = true;
  EXPECT_EQ(make_plan(options)->slots(), 128u);
  options.size_bytes = 16u << 20;
  EXPECT_EQ(make_plan(options)->slots(), 4u) << "bounded memory";
  options.size_bytes = 1u << 30;
  EXPECT_EQ(make_plan(options)->slots(), 1u);
}

struct Bad {
  const char* why;
  void (*spoil)(Options&);
  const char* mentioned;
};
const Bad bad_options[] = {
    {"empty message", [](Options& o) { o.size_bytes = 0; }, "-s 0"},
    {"huge message", [](Options& o) { o.size_bytes = (1ull << 30) + 1; }, "-s 1073741825"},
    {"no iterations", [](Options& o) { o.iterations = 0; }, "-n 0"},
    {"endless iterations", [](Options& o) { o.iterations = UINT64_MAX; }, "-n 18446744073709551615"},
    {"no time", [](Options& o) { o.duration_s = 0; }, "-D 0"},
    {"negative time", [](Options& o) { o.duration_s = -1; }, "-D -1"},
    {"no number", [](Options& o) { o.duration_s = std::nan(""); }, "-D nan"},
    {"for ever", [](Options& o) { o.duration_s = std::numeric_limits<double>::infinity(); }, "-D inf"},
    {"both lengths", [](Options& o) { o.iterations = 1, o.duration_s = 1; }, "-n or -D"},
    {"both sizes", [](Options& o) { o.all_sizes = true, o.size_bytes = 1; }, "-a or -s"},
    {"no queue pair", [](Options& o) { o.queue_pairs = 0; }, "-q 0"},
    {"many queue pairs", [](Options& o) { o.queue_pairs = 1025; }, "-q 1025"},
    {"no depth", [](Options& o) { o.tx_depth = 0; }, "--tx-depth 0"},
    {"too much memory", [](Options& o) { o.size_bytes = 1u << 30, o.queue_pairs = 5; }, "memory"},
    {"latency in parallel", [](Options& o) { o.test = find_test("send_lat"), o.queue_pairs = 2; }, "-q"},
    {"latency both ways", [](Options& o) { o.test = find_test("send_lat"), o.bidirectional = true; }, "-b"},
};

TEST(MakePlan, ErrorsNameTheOption) {
  for (const Bad& bad : bad_options) {
    Options options = options_for("write_bw");
    bad.spoil(options);
    const auto plan = make_plan(options);
    ASSERT_FALSE(plan) << bad.why;
    EXPECT_EQ(plan.error().code, Errc::invalid_argument) << bad.why;
    EXPECT_NE(plan.error().message.find(bad.mentioned), std::string::npos) << plan.error().message;
  }
}

}  // namespace
}  // namespace beeline::perf
