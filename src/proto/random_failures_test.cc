// Random operations of which one must fail: both lanes tell the same story.

#include <gtest/gtest.h>

#include "proto/testing/lanes.h"
#include "proto/testing/seeds.h"
#include "proto/testing/solo.h"

namespace beeline::proto::testing {
namespace {

enum class Mistake {
  remote_key,
  remote_bounds,
  local_key,
  short_receive,
  closed_receive,
  misaligned,
  no_such_window,
  count
};

struct Step {
  WrOpcode opcode{};
  std::uint32_t length = 0;
};

struct Story {
  Statuses sender, receiver;
  friend bool operator==(const Story&, const Story&) = default;
};

struct Script {
  std::vector<Step> steps;
  std::size_t wrong = 0;  // which step
  Mistake mistake{};
};

bool takes_receive(WrOpcode opcode) {
  return opcode == WrOpcode::send || opcode == WrOpcode::send_imm || opcode == WrOpcode::write_imm ||
         opcode == WrOpcode::send_inv;
}

// At the peer: every step has one of its own.
Key window_of(std::size_t step) { return Key{0x5000 + static_cast<std::uint32_t>(step)}; }

Script draw_script(std::uint64_t seed) {
  Prng random(seed);
  Script script;
  script.steps.resize(1 + random.below(12));
  for (Step& step : script.steps)
    step = {static_cast<WrOpcode>(random.below(8)), static_cast<std::uint32_t>(1 + random.below(4000))};
  script.wrong = random.below(script.steps.size());
  script.mistake = static_cast<Mistake>(random.below(static_cast<std::uint64_t>(Mistake::count)));
  Step& wrong = script.steps[script.wrong];
  if (script.mistake == Mistake::short_receive || script.mistake == Mistake::closed_receive)
    wrong.opcode = WrOpcode::send;
  if (script.mistake == Mistake::remote_key || script.mistake == Mistake::remote_bounds)
    wrong.opcode = std::array{WrOpcode::write, WrOpcode::read, WrOpcode::fetch_add,
                              WrOpcode::compare_swap}[random.below(4)];
  if (script.mistake == Mistake::misaligned)
    wrong.opcode = random.chance(0.5) ? WrOpcode::fetch_add : WrOpcode::compare_swap;
  if (script.mistake == Mistake::no_such_window) wrong.opcode = WrOpcode::send_inv;
  for (Step& step : script.steps)
    if (is_atomic(step.opcode)) step.length = 8;
  return script;
}

WcStatus expected_status(Mistake mistake) {
  switch (mistake) {
    case Mistake::remote_key:
    case Mistake::remote_bounds:
    case Mistake::no_such_window:
      return WcStatus::remote_access_error;
    case Mistake::local_key:
      return WcStatus::local_protection_error;
    case Mistake::misaligned:
    case Mistake::short_receive:
      return WcStatus::remote_invalid_request;
    case Mistake::closed_receive:
      return WcStatus::remote_operation_error;
    case Mistake::count:
      break;
  }
  return WcStatus::success;
}

void post(OperationPair& pair, const Script& script) {
  for (std::size_t i = 0; i < script.steps.size(); ++i) {
    const Step& step = script.steps[i];
    const bool wrong = i == script.wrong;
    const auto is = [&](Mistake mistake) { return wrong && script.mistake == mistake; };
    if (takes_receive(step.opcode)) {
      const Sge room{local_base, is(Mistake::short_receive) ? step.length - 1 : step.length,
                     is(Mistake::closed_receive) ? read_only_key : local_key};
      ASSERT_EQ(pair.post_recv(1, {100 + i, std::span(&room, 1)}), PostResult::ok);
    }
    const Sge sge{local_base, step.length, is(Mistake::local_key) ? Key{0xBAD} : local_key};
    SendWr wr;
    wr.wr_id = i;
    wr.opcode = step.opcode;
    wr.signaled = true;
    wr.remote_address =
        is(Mistake::remote_bounds) ? remote_base + region_bytes - step.length + 8 : remote_base;
    if (is(Mistake::misaligned)) wr.remote_address += 4;
    wr.invalidate = is(Mistake::no_such_window) ? Key{0xBAD} : window_of(i);
    wr.rkey = is(Mistake::remote_key) ? Key{0xBAD} : remote_key;
    wr.sges = std::span(&sge, 1);
    ASSERT_EQ(pair.post_send(0, wr), PostResult::ok);
  }
}

Story tell(OperationPair& pair, const Script& script) {
  for (int side = 0; side < 2; ++side) {
    constexpr Access all =
        Access::local_write | Access::remote_write | Access::remote_read | Access::remote_atomic;
    for (std::size_t i = 0; i < script.steps.size(); ++i)
      pair.memory(side).add(window_of(i), test_domain, remote_base, 8, all);
    pair.memory(side).add(local_key, test_domain, local_base, region_bytes, Access::local_write);
    pair.memory(side).add(read_only_key, test_domain, local_base, region_bytes, Access::none);
    pair.memory(side).add(remote_key, test_domain, remote_base, region_bytes, all);
  }
  post(pair, script);
  pair.settle();
  return {statuses(pair.poll_all(0)), statuses(pair.poll_all(1))};
}

TEST(RandomFailures, TellTheSameStoryOnEveryLane) {
  const std::uint64_t seeds = seed_count(300, 5'000, "a script with one mistake");
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Script script = draw_script(seed);
    PairOptions options;
    options.seed = seed;
    const Story story = tell(*make_pair(LaneKind::wire, options), script);
    for (const LaneKind lane : all_lanes)
      EXPECT_EQ(story, tell(*make_pair(lane, options), script)) << "lane " << static_cast<int>(lane);
    ASSERT_EQ(story.sender.size(), script.steps.size());
    for (std::size_t i = 0; i < script.steps.size(); ++i) {
      EXPECT_EQ(story.sender[i].first, i);
      EXPECT_EQ(story.sender[i].second, i < script.wrong    ? WcStatus::success
                                        : i == script.wrong ? expected_status(script.mistake)
                                                            : WcStatus::flushed);
    }
  }
}

// With losses too, the peer learns the reason, unless the answer to an earlier READ or atomic was lost:
// nothing is answered any more in ERR, and the request runs out of time.
TEST(RandomFailures, NameTheReasonInSpiteOfLosses) {
  const std::uint64_t seeds = seed_count(300, 5'000, "a script with one mistake on a lossy wire");
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Script script = draw_script(seed);
    for (std::size_t i = 0; i < script.wrong; ++i)
      if (answered_by_data(script.steps[i].opcode)) script.steps[i].opcode = WrOpcode::write;
    PairOptions options;
    options.seed = seed;
    options.attributes.timeout = 0;
    options.faults = {.loss = 0.2, .duplication = 0.2, .reordering = 0.2, .corruption = 0.1, .forgery = 0};
    WirePair pair(options);
    const Story story = tell(pair, script);
    ASSERT_EQ(story.sender.size(), script.steps.size());
    EXPECT_EQ(story.sender[script.wrong].second, expected_status(script.mistake));
  }
}

}  // namespace
}  // namespace beeline::proto::testing
