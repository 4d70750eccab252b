// Random operations over both lanes: right bytes, right completions, whatever the wire does.

#include <gtest/gtest.h>

#include "proto/testing/pair.h"
#include "proto/testing/seeds.h"
#include "proto/testing/workload.h"

namespace beeline::proto::testing {
namespace {

struct Scenario {
  PairOptions pair;
  WorkloadOptions workload;
};

template <class T, std::size_t N>
T one_of(Prng& random, const T (&values)[N]) {
  return values[random.below(N)];
}

// Everything that varies, drawn from the seed.
Scenario draw_scenario(std::uint64_t seed) {
  Prng random(seed * 2 + 1);
  Scenario scenario;
  PairOptions& pair = scenario.pair;
  pair.seed = seed;
  pair.limits.send_depth = one_of(random, {1u, 3u, 16u, 50u});
  pair.limits.receive_depth = one_of(random, {1u, 4u, 16u, 50u});
  pair.limits.send_sges = one_of(random, {1u, 2u, 5u, 16u});
  pair.limits.receive_sges = one_of(random, {1u, 3u, 16u});
  pair.limits.inline_bytes = one_of(random, {0u, 17u, 256u});
  pair.window_bytes = one_of(random, {1u, 3'000u, 16'384u, 65'536u, 1u << 20});
  pair.attributes.path_mtu_bytes = one_of(random, {256u, 512u, 1024u, 4096u});
  pair.attributes.max_rd_atomic = one_of(random, {std::uint8_t{1}, std::uint8_t{2}, std::uint8_t{16}});
  pair.attributes.max_dest_rd_atomic = pair.attributes.max_rd_atomic;
  pair.attributes.min_rnr_timer = one_of(random, {std::uint8_t{1}, std::uint8_t{8}, std::uint8_t{14}});
  pair.attributes.timeout = 0;  // never give up: giving up has its own tests
  for (Psn& psn : pair.first_psn)
    psn = random.chance(0.5) ? Psn{Psn::mask} - static_cast<std::uint32_t>(random.below(20))
                             : Psn{static_cast<std::uint32_t>(random.below(Psn::mask + 1u))};
  const double rates[] = {0, 0.01, 0.05, 0.2};
  pair.faults = {one_of(random, rates), one_of(random, rates), one_of(random, rates), one_of(random, rates),
                 0};
  pair.vary_window = random.chance(0.5);
  pair.socket_refusal = one_of(random, {0.0, 0.1, 0.3});
  pair.hold_acks = random.chance(0.5);
  scenario.workload.receive_eagerness = one_of(random, {0.01, 0.3, 0.9});
  return scenario;
}

std::uint64_t run_wire(const Scenario& scenario) {
  WirePair pair(scenario.pair);
  Workload workload(pair, scenario.pair, scenario.workload, scenario.pair.seed);
  workload.run();
  return pair.trace().value();
}

TEST(RandomOperations, ArriveOverALossyWire) {
  const std::uint64_t seeds = seed_count(250, 10'000, "a wire, limits and operations of its own");
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run_wire(draw_scenario(seed));
  }
}

TEST(RandomOperations, ArriveAtTwentyPercentOfEveryFault) {
  const std::uint64_t seeds = seed_count(50, 5'000, "the same on a wire at its worst");
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Scenario scenario = draw_scenario(seed);
    scenario.pair.faults = {0.2, 0.2, 0.2, 0.2, 0};
    run_wire(scenario);
  }
}

TEST(RandomOperations, ArriveOverTheDirectLane) {
  const std::uint64_t seeds = seed_count(250, 20'000, "limits and operations of its own");
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Scenario scenario = draw_scenario(seed);
    DirectPair pair(scenario.pair);
    Workload(pair, scenario.pair, scenario.workload, seed).run();
  }
}

TEST(RandomOperations, ArriveOverSharedMemory) {
  const std::uint64_t seeds = seed_count(250, 20'000, "limits and operations of its own");
  std::uint64_t copied_directly = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Scenario scenario = draw_scenario(seed);
    scenario.pair.attributes.path_mtu_bytes = 4096;  // only the sizes of the workload come from it
    const bool reads = (seed & 1) != 0, is_read = (seed & 2) != 0;
    SharedMemoryPair pair(scenario.pair, {reads, is_read, SharedMemoryPair::some_bytes});
    Workload(pair, scenario.pair, scenario.workload, seed).run();
    copied_directly += pair.copied_bytes();
  }
  EXPECT_GT(copied_directly, 0u);
}

TEST(RandomOperations, AreTheSameForTheSameSeed) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Scenario scenario = draw_scenario(seed);
    EXPECT_EQ(run_wire(scenario), run_wire(scenario)) << "seed " << seed;
  }
  EXPECT_NE(run_wire(draw_scenario(1)), run_wire(draw_scenario(2)));
}

}  // namespace
}  // namespace beeline::proto::testing
