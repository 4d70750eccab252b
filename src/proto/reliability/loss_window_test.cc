// What is on its way where packets are lost, and how that is noticed: by itself, and between two queue pairs.

#include "proto/reliability/loss_window.h"

#include <gtest/gtest.h>

#include "proto/testing/pair.h"
#include "proto/testing/seeds.h"
#include "proto/testing/solo.h"

namespace beeline::proto::testing {
namespace {

using enum wire::Opcode;
using wire::Aeth;
using wire::NakCode;

TEST(LossWindow, IsNoneUntilSomethingIsLost) {
  LossWindow window;
  window.configure(1024);
  EXPECT_GE(window.bytes(), 1u << 30);
  window.note_acknowledged(1 << 20, 1 << 20, 1 << 20);
  EXPECT_GE(window.bytes(), 1u << 30);
}

TEST(LossWindow, HalvesWhatWasOnItsWayAndStopsAtAFewPackets) {
  LossWindow window;
  window.configure(4096);
  window.note_loss(1 << 20);
  EXPECT_EQ(window.bytes(), 1u << 19);
  window.note_loss(1 << 18);
  EXPECT_EQ(window.bytes(), 1u << 17);
  for (int i = 0; i < 20; ++i) window.note_loss(1 << 20);
  EXPECT_EQ(window.bytes(), 4u * 4096);
}

TEST(LossWindow, GrowsByOneStepAWindowIfItIsUsed) {
  LossWindow window;
  window.configure(1024);
  window.note_loss(1 << 17);
  const std::uint64_t before = window.bytes();
  window.note_acknowledged(before - 1, before, 1 << 20);
  EXPECT_EQ(window.bytes(), before);
  window.note_acknowledged(1, before, 1 << 20);
  const std::uint64_t grown = window.bytes();
  EXPECT_GT(grown, before);
  window.note_acknowledged(10 * grown, grown / 4, 1 << 20);
  EXPECT_EQ(window.bytes(), grown) << "who sends little learns nothing of the path";
}

TEST(LossWindow, IsNoneAgainWhenItReachesWhatIsAllowed) {
  LossWindow window;
  window.configure(1024);
  window.note_loss(1 << 20);
  int windows = 0;
  while (window.bytes() < 1u << 20 && windows < 1000) {
    window.note_acknowledged(window.bytes(), window.bytes(), 1 << 20);
    ++windows;
  }
  EXPECT_GE(window.bytes(), 1u << 30);
  EXPECT_LE(windows, 16) << "soon, where losses are rare";
}

TEST(Loss, SilenceShrinksNoWindow) {
  Solo solo;
  solo.post(WrOpcode::write, 64 * 1024, 1);
  EXPECT_EQ(solo.transmit().size(), 64u);
  solo.now = solo.qp.next_timeout();
  solo.qp.handle_timeout(solo.now);
  const auto again = solo.transmit();
  ASSERT_EQ(again.size(), 64u);
  EXPECT_TRUE(again[1].alone) << "trains may be what does not arrive";
}

// --- one queue pair

PairOptions many_packets() {
  PairOptions options = solo_options();
  options.attributes.path_mtu_bytes = 1024;
  return options;
}

// So many packets are out; returns how many go out again at once after a NAK for the first.
std::size_t repeated_after(std::uint32_t packets) {
  Solo solo(many_packets());
  solo.post(WrOpcode::write, packets * 1024, 1);
  EXPECT_EQ(solo.transmit().size(), packets);
  solo.nak(first_sent, NakCode::psn_sequence);
  return solo.transmit().size();
}

TEST(Loss, HalfOfWhatWasOnItsWayIsRepeatedAtFirst) {
  EXPECT_EQ(repeated_after(64), 32u);
  EXPECT_EQ(repeated_after(4), 4u);
}

TEST(Loss, APacketThatIsLostAgainIsReportedAgain) {
  Solo solo;
  const auto nak = [&] {
    const auto descs = solo.transmit();
    return descs.size() == 1 && descs[0].headers.aeth == Aeth::nak(NakCode::psn_sequence, 0) &&
           descs[0].headers.bth.psn == first_received;
  };
  solo.request(rc_write_only, first_received + 1, 4, 4);
  EXPECT_TRUE(nak());
  solo.request(rc_write_only, first_received + 2, 4, 4);
  EXPECT_TRUE(solo.transmit().empty());
  solo.request(rc_write_only, first_received + 1, 4, 4);  // the peer went back; the first was lost once more
  EXPECT_TRUE(nak());
  solo.request(rc_write_only, first_received + 2, 4, 4);
  EXPECT_TRUE(solo.transmit().empty());
  solo.request(rc_write_only, first_received, 4, 4);
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_acknowledge, first_received.value}}));
}

TEST(Loss, ASecondNakIsObeyedWhenItCanBeAnAnswerToTheRepetition) {
  Solo solo;
  solo.post(WrOpcode::send, 4, 1);
  solo.transmit();
  solo.now = solo.now + 100us;
  solo.ack(first_sent);  // a round trip of 100 us
  solo.post(WrOpcode::send, 2048, 2);
  solo.transmit();
  solo.nak(first_sent + 1, NakCode::psn_sequence);
  EXPECT_EQ(solo.transmit().size(), 2u);
  solo.now = solo.now + 10us;
  solo.nak(first_sent + 1, NakCode::psn_sequence);  // doubled by the network
  EXPECT_TRUE(solo.transmit().empty());
  solo.now = solo.now + 90us;
  solo.nak(first_sent + 1, NakCode::psn_sequence);
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_send_first, 1001}, {rc_send_last, 1002}}));
  EXPECT_EQ(solo.qp.counters().timeouts, 0u);
}

// The first packet of a train always arrives, whatever numbers the others have.
TEST(Loss, WhatIsRepeatedLeavesInTrainsOnlyIfTrainsArrive) {
  Solo solo(many_packets());
  const auto alone = [](const std::vector<TxDesc>& descs) {
    return std::count_if(descs.begin(), descs.end(), [](const TxDesc& desc) { return desc.alone; });
  };
  solo.post(WrOpcode::write, 32 * 1024, 1);
  EXPECT_EQ(alone(solo.transmit()), 0);
  solo.nak(first_sent + 10, NakCode::psn_sequence);
  const auto again = solo.transmit();
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(alone(again), 0) << "ten packets of a train have arrived";
  for (const TxDesc& desc : again) EXPECT_TRUE(desc.must_copy);
  solo.nak(first_sent + 11, NakCode::psn_sequence);
  const auto third = solo.transmit();
  ASSERT_FALSE(third.empty());
  EXPECT_EQ(alone(third), static_cast<std::ptrdiff_t>(third.size()));
}

// --- two of them: with the same losses, fewer packets are repeated than a whole window for each

TEST(Loss, RepeatsFarLessThanAWindowForEachLoss) {
  const std::uint64_t seeds = seed_count(10, 200, "another loss");
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    PairOptions options;
    options.seed = seed;
    options.window_bytes = 256 * 1024;
    options.faults.loss = 0.01;
    options.attributes.timeout = 0;
    WirePair pair(options);
    constexpr Key key{0x10};
    constexpr std::uint32_t bytes = 64 * 1024;
    constexpr int messages = 64;
    for (int side = 0; side < 2; ++side)
      pair.memory(side).add(key, test_domain, 0x1000, bytes, Access::local_write | Access::remote_write);
    const Sge sge{0x1000, bytes, key};
    int posted = 0, done = 0;
    ASSERT_TRUE(pair.run_until([&] {
      for (const Completion& completion : pair.poll_all(0)) {
        EXPECT_EQ(completion.status, WcStatus::success);
        ++done;
      }
      SendWr wr;
      wr.opcode = WrOpcode::write;
      wr.signaled = true;
      wr.sges = std::span(&sge, 1);
      wr.remote_address = 0x1000;
      wr.rkey = key;
      while (posted < messages && posted - done < 16 && pair.post_send(0, wr) == PostResult::ok) ++posted;
      return done == messages;
    }));
    const std::uint64_t needed = std::uint64_t{messages} * bytes / 1024;
    EXPECT_LT(pair.qp(0).counters().retransmitted_packets, needed) << "of " << needed << " that were needed";
  }
}

}  // namespace
}  // namespace beeline::proto::testing
