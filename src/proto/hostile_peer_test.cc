// A peer that forges packets, and proof that the random tests can fail.

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <set>

#include "proto/testing/seeds.h"
#include "proto/testing/solo.h"
#include "proto/testing/workload.h"

namespace beeline::proto::testing {
namespace {

wire::Headers random_headers(Prng& random, const wire::OpcodeInfo& row) {
  const auto near = [&](Psn psn) { return psn + static_cast<std::uint32_t>(random.below(12)) - 4; };
  wire::Headers headers =
      Solo::header(row.opcode, near(row.is_request() ? first_received : first_sent), random.chance(0.5));
  if (random.chance(0.1)) headers.bth.psn = Psn{static_cast<std::uint32_t>(random.below(Psn::mask + 1u))};
  headers.bth.solicited = random.chance(0.5);
  headers.reth.address = random.chance(0.7) ? remote_base + random.below(region_bytes) : random.next();
  headers.reth.rkey = random.chance(0.8) ? remote_key : Key{static_cast<std::uint32_t>(random.next())};
  headers.reth.length = static_cast<std::uint32_t>(random.chance(0.8) ? random.below(5000) : random.next());
  headers.atomic = {headers.reth.address, headers.reth.rkey, random.next(), random.next()};
  headers.atomic_before = UINT64_MAX;
  headers.invalidate = random.chance(0.5) ? spare_key : headers.reth.rkey;
  headers.aeth = {static_cast<std::uint8_t>(random.next()),
                  static_cast<std::uint32_t>(random.below(1 << 24))};
  return headers;
}

void post_anything(Solo& solo, Prng& random, std::uint64_t wr_id) {
  const auto opcode = static_cast<WrOpcode>(random.below(9));
  if (opcode == WrOpcode::local_inv) {
    solo.post_local_inv(spare_key, wr_id);
  } else {
    solo.post(opcode, is_atomic(opcode) ? 8 : static_cast<std::uint32_t>(random.below(3000)), wr_id);
  }
}

// Any packet at any time: nothing outside of what is open to the peer changes, every request
// completes at most once, nothing is sent for ever.
TEST(HostilePeer, CannotDoMoreThanItMay) {
  const std::uint64_t count = seed_count(300, 30'000, "100 forged packets between honest work");
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng random(seed);
    Solo solo;
    const auto local = solo.memory.find(local_key)->bytes;
    std::set<std::uint64_t> completed;
    std::uint64_t next_id = 1;
    for (int i = 0; i < 100; ++i) {
      if (random.chance(0.2)) solo.receive(static_cast<std::uint32_t>(random.below(3000)), next_id++);
      if (random.chance(0.2)) post_anything(solo, random, next_id++);
      const auto table = wire::opcode_table();
      const wire::OpcodeInfo& row = table[random.below(table.size())];
      const std::uint32_t bytes = random.chance(0.6) ? 1024 : static_cast<std::uint32_t>(random.below(1100));
      solo.give(random_headers(random, row),
                row.payload == wire::PayloadRule::none ? Bytes{} : solo.payload(bytes));
      for (int polls = 0; solo.qp.wants_transmit(solo.now) && polls < 4; ++polls) solo.transmit(64);
      if (random.chance(0.1)) {
        solo.now = solo.now + 5ms;
        solo.qp.handle_timeout(solo.now);
      }
      for (const Completion& completion : solo.completions())
        ASSERT_TRUE(completed.insert(completion.wr_id).second) << "completed twice";
    }
    // Receives and READs reach 3000 bytes into the local region, no further.
    const auto& after = solo.memory.find(local_key)->bytes;
    ASSERT_TRUE(std::equal(local.begin() + 3000, local.end(), after.begin() + 3000));
    QpAttr error;
    error.state = QpState::err;
    ASSERT_TRUE(solo.qp.modify(solo.now, error, attr::state));
    for (const Completion& completion : solo.completions())
      ASSERT_TRUE(completed.insert(completion.wr_id).second) << "completed twice";
  }
}

// Two honest sides, and somebody between them who flips header bits and knows the ICRC.
TEST(HostilePeer, ForgedHeadersNeverHangOrCrash) {
  const std::uint64_t count = seed_count(100, 5'000, "two honest sides and a forger between them");
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    PairOptions options;
    options.seed = seed;
    options.faults = {.loss = 0.05, .duplication = 0.05, .reordering = 0.05, .corruption = 0, .forgery = 0.1};
    WirePair pair(options);
    for (int side = 0; side < 2; ++side) {
      pair.memory(side).add(local_key, test_domain, local_base, region_bytes, Access::local_write);
      pair.memory(side).add(
          remote_key, test_domain, remote_base, region_bytes,
          Access::local_write | Access::remote_write | Access::remote_read | Access::remote_atomic);
    }
    Prng random(options.seed);
    std::uint64_t posted = 0;
    for (int i = 0; i < 30; ++i) {
      for (int side = 0; side < 2; ++side) {
        SendWr wr;
        wr.opcode = static_cast<WrOpcode>(random.below(7));
        const auto length = static_cast<std::uint32_t>(is_atomic(wr.opcode) ? 8 : random.below(6000));
        const Sge sge{local_base, length, local_key};
        wr.signaled = true;
        wr.remote_address = remote_base;
        wr.rkey = remote_key;
        wr.sges = std::span(&sge, 1);
        posted += pair.post_send(side, wr) == PostResult::ok;
        const Sge room{local_base + 8000, 8000, local_key};
        posted += pair.post_recv(side, {1, std::span(&room, 1)}) == PostResult::ok;
      }
      pair.run_until([] { return false; }, 100us);
    }
    pair.run_until([] { return false; }, 20s);
    EXPECT_LT(pair.now().ns, 100'000'000'000);
    std::uint64_t completed = 0;
    for (int side = 0; side < 2; ++side) {
      QpAttr error;
      error.state = QpState::err;
      ASSERT_TRUE(pair.qp(side).modify(pair.now(), error, attr::state));
      completed += pair.poll_all(side).size();
    }
    EXPECT_EQ(completed, posted) << "everything posted completes exactly once";
  }
}

// The random tests can fail: one payload byte that changes behind the ICRC's back, on a wire
// where nothing is sent twice, must be noticed by the workload.
bool notices_a_wrong_byte(std::uint64_t seed, std::uint64_t datagram) {
  PairOptions options;
  options.seed = seed;
  options.limits.receive_depth = 64;
  const WorkloadOptions all_receives_first{.receive_eagerness = 1.0};
  ::testing::TestPartResultArray failures;
  ::testing::ScopedFakeTestPartResultReporter reporter(
      ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
  WirePair pair(options);
  Workload workload(pair, options, all_receives_first, seed);
  pair.wire().flip_payload_byte_of(datagram);
  workload.run();
  return failures.size() != 0;
}

TEST(Harness, NoticesASingleWrongByte) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_TRUE(notices_a_wrong_byte(seed, seed * 3)) << "seed " << seed;
    EXPECT_FALSE(notices_a_wrong_byte(seed, UINT64_MAX)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace beeline::proto::testing
