// What the requester does when something is lost, refused, late, or cannot be sent.

#include <gtest/gtest.h>

#include "proto/ops/rnr_timer.h"
#include "proto/testing/solo.h"

namespace beeline::proto::testing {
namespace {

using enum wire::Opcode;
using wire::NakCode;

TEST(Recovery, ASequenceNakGoesBackOnceAndAcknowledgesWhatCameBefore) {
  Solo solo;
  for (std::uint64_t id = 1; id <= 3; ++id) solo.post(WrOpcode::send, 2048, id);
  solo.transmit();
  solo.nak(first_sent + 3, NakCode::psn_sequence);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::success}}));
  const auto again = solo.transmit();
  EXPECT_EQ(outline(again), (Outline{{rc_send_last, 1003}, {rc_send_first, 1004}, {rc_send_last, 1005}}));
  for (const TxDesc& desc : again)
    EXPECT_TRUE(desc.must_copy) << "retransmissions are copied before the ICRC";
  solo.nak(first_sent + 3, NakCode::psn_sequence);  // repeated by the wire
  EXPECT_TRUE(solo.transmit().empty());
  EXPECT_EQ(solo.qp.counters().retransmitted_packets, 3u);
  solo.ack(first_sent + 5);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{2, WcStatus::success}, {3, WcStatus::success}}));
}

TEST(Recovery, ANakOutsideTheFlightIsIgnored) {
  Solo solo;
  solo.post(WrOpcode::send, 4, 1);
  solo.transmit();
  solo.nak(first_sent - 1, NakCode::remote_access);
  solo.nak(first_sent + 1, NakCode::remote_access);
  solo.answer(first_sent, wire::Aeth{0x60 | 9, 0});  // reserved code
  solo.answer(first_sent, wire::Aeth{0x40, 0});      // reserved syndrome
  EXPECT_EQ(solo.qp.state(), QpState::rts);
  EXPECT_TRUE(solo.completions().empty());
}

TEST(Recovery, NoAckStepsOverAnUnfinishedRead) {
  Solo solo;
  solo.post(WrOpcode::send, 4, 1);
  solo.post(WrOpcode::read, 3000, 2);
  solo.post(WrOpcode::send, 4, 3);
  solo.transmit();
  solo.respond(rc_read_response_first, first_sent + 1, 1024);
  solo.ack(first_sent + 4);  // of the last SEND: two responses must have been lost
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::success}}));
  const auto again = solo.transmit();
  ASSERT_EQ(outline(again), (Outline{{rc_read_request, 1002}, {rc_send_only, 1004}}));
  EXPECT_EQ(again[0].headers.reth, (wire::Reth{remote_base + 1024, Key{0x77}, 3000 - 1024}))
      << "resumes at the bytes received";
  solo.respond(rc_read_response_first, first_sent + 2, 1024);
  solo.respond(rc_read_response_last, first_sent + 3, 952);
  solo.ack(first_sent + 4);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{2, WcStatus::success}, {3, WcStatus::success}}));
  EXPECT_TRUE(solo.holds_pattern(local_key, 1024, 1024));
}

TEST(Recovery, AReadResponseOutOfOrderResumesTheRead) {
  Solo solo;
  solo.post(WrOpcode::read, 4 * 1024, 1);
  solo.transmit();
  solo.respond(rc_read_response_first, first_sent, 1024);
  solo.respond(rc_read_response_middle, first_sent + 2, 1024);  // 1001 was lost
  solo.respond(rc_read_response_last, first_sent + 3, 1024);
  const auto again = solo.transmit();
  ASSERT_EQ(outline(again), (Outline{{rc_read_request, 1001}})) << "once for the whole gap";
  EXPECT_EQ(again[0].headers.reth, (wire::Reth{remote_base + 1024, Key{0x77}, 3 * 1024}));
  // The answer may restart with FIRST, and end with LAST or ONLY.
  solo.respond(rc_read_response_first, first_sent + 1, 1024);
  solo.respond(rc_read_response_middle, first_sent + 2, 1024);
  solo.respond(rc_read_response_only, first_sent + 3, 1024);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::success}}));
}

TEST(Recovery, AReadResponseAcknowledgesEarlierRequests) {
  Solo solo;
  solo.post(WrOpcode::write, 2048, 1);
  solo.post(WrOpcode::read, 8, 2);
  solo.transmit();
  solo.respond(rc_read_response_only, first_sent + 2, 8);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::success}, {2, WcStatus::success}}));
}

TEST(Recovery, NakCodesBecomeStatusesAndFlushTheRest) {
  const std::pair<NakCode, WcStatus> rows[] = {{NakCode::invalid_request, WcStatus::remote_invalid_request},
                                               {NakCode::remote_access, WcStatus::remote_access_error},
                                               {NakCode::remote_operation, WcStatus::remote_operation_error}};
  for (const auto& [code, status] : rows) {
    Solo solo;
    solo.receive(10, 100);
    for (std::uint64_t id = 1; id <= 3; ++id) solo.post(WrOpcode::write, 8, id);
    solo.transmit();
    solo.nak(first_sent + 1, code);
    EXPECT_EQ(
        statuses(solo.completions()),
        (Statuses{{1, WcStatus::success}, {2, status}, {3, WcStatus::flushed}, {100, WcStatus::flushed}}));
    EXPECT_EQ(solo.qp.state(), QpState::err);
    EXPECT_TRUE(solo.transmit().empty());
    EXPECT_EQ(solo.qp.next_timeout(), TimePoint::never());
  }
}

TEST(Recovery, AnRnrNakWaitsAsLongAsTheTableSays) {
  for (std::uint8_t index = 0; index < 32; ++index) {
    Solo solo;
    solo.post(WrOpcode::send, 2048, 1);
    solo.transmit();
    solo.answer(first_sent, wire::Aeth::rnr_nak(index, 0));
    EXPECT_EQ(solo.qp.next_timeout(), solo.now + rnr_wait(index)) << "not cut short by the retransmit timer";
    solo.answer(first_sent, wire::Aeth::rnr_nak(index, 0));  // repeated by the wire: the wait stands
    const TimePoint end = solo.now + rnr_wait(index);
    solo.now = end - 1ns;
    solo.qp.handle_timeout(solo.now);
    EXPECT_TRUE(solo.transmit().empty());
    solo.now = end;
    solo.qp.handle_timeout(solo.now);
    EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_send_first, 1000}, {rc_send_last, 1001}}));
  }
  EXPECT_EQ(rnr_wait(0), 655'360us);
  EXPECT_EQ(rnr_wait(1), 10us);
  EXPECT_EQ(rnr_wait(31), 491'520us);
}

TEST(Recovery, RnrRetriesAreCountedAndProgressResetsThem) {
  PairOptions options = solo_options();
  options.attributes.rnr_retry = 2;
  Solo solo(options);
  const auto refuse = [&](Psn psn) {
    solo.transmit();
    solo.answer(psn, wire::Aeth::rnr_nak(1, 0));
    solo.now = solo.now + 10us;
    solo.qp.handle_timeout(solo.now);
  };
  solo.post(WrOpcode::send, 4, 1);
  solo.post(WrOpcode::send, 4, 2);
  refuse(first_sent);
  refuse(first_sent);
  solo.transmit();
  solo.ack(first_sent);
  refuse(first_sent + 1);
  refuse(first_sent + 1);
  EXPECT_EQ(solo.qp.state(), QpState::rts);
  refuse(first_sent + 1);
  EXPECT_EQ(statuses(solo.completions()),
            (Statuses{{1, WcStatus::success}, {2, WcStatus::rnr_retry_exceeded}}));
}

TEST(Recovery, RnrRetrySevenIsForEver) {
  Solo solo;
  solo.post(WrOpcode::send, 4, 1);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(solo.transmit().size(), 1u);
    solo.answer(first_sent, wire::Aeth::rnr_nak(31, 0));
    solo.now = solo.qp.next_timeout();
    solo.qp.handle_timeout(solo.now);
  }
  EXPECT_EQ(solo.qp.state(), QpState::rts);
}

// Fires the timer until the queue pair gives up; returns how long that took.
Duration time_to_give_up(Solo& solo, int limit = 10'000) {
  const TimePoint begin = solo.now;
  while (limit-- != 0 && solo.qp.state() == QpState::rts) {
    solo.transmit();
    solo.now = solo.qp.next_timeout();
    solo.qp.handle_timeout(solo.now);
  }
  return solo.now - begin;
}

TEST(Recovery, GivesUpAfterTheConfiguredTimeWithoutProgress) {
  for (const std::uint8_t retries : std::to_array<std::uint8_t>({0, 1, 7})) {
    PairOptions options = solo_options();
    options.attributes.timeout = 14;
    options.attributes.retry_count = retries;
    Solo solo(options);
    solo.post(WrOpcode::send, 4, 1);
    solo.post(WrOpcode::send, 4, 2);
    solo.transmit();
    EXPECT_EQ(time_to_give_up(solo), Duration{4096ll << 14} * (retries + 1));
    EXPECT_EQ(statuses(solo.completions()),
              (Statuses{{1, WcStatus::retry_exceeded}, {2, WcStatus::flushed}}));
  }
}

TEST(Recovery, ProgressRestartsTheTimeToGiveUp) {
  Solo solo;
  solo.post(WrOpcode::send, 4, 1);
  solo.post(WrOpcode::send, 4, 2);
  solo.transmit();
  const Duration bound = Duration{4096ll << 14} * 8;
  solo.now = solo.now + bound - 1ns;
  solo.ack(first_sent);
  EXPECT_EQ(time_to_give_up(solo), bound);
}

TEST(Recovery, TimeoutZeroRetransmitsButNeverGivesUp) {
  PairOptions options = solo_options();
  options.attributes.timeout = 0;
  Solo solo(options);
  solo.post(WrOpcode::send, 4, 1);
  EXPECT_GT(time_to_give_up(solo, 1000), 500s);
  EXPECT_EQ(solo.qp.state(), QpState::rts);
  EXPECT_EQ(solo.qp.counters().timeouts, 1000u);
}

TEST(Recovery, TheTimerFollowsTheRoundTripAndBacksOff) {
  Solo solo;
  for (int i = 0; i < 20; ++i) {
    solo.post(WrOpcode::send, 4, 1);
    const auto sent = solo.transmit();
    solo.now = solo.now + 50us;
    solo.ack(sent[0].headers.bth.psn);
  }
  solo.completions();
  solo.post(WrOpcode::send, 4, 2);
  std::vector<Duration> waits;
  for (int i = 0; i < 4; ++i) {
    solo.transmit();
    waits.push_back(solo.qp.next_timeout() - solo.now);
    solo.now = solo.qp.next_timeout();
    solo.qp.handle_timeout(solo.now);
  }
  EXPECT_EQ(waits, (std::vector<Duration>{1ms, 2ms, 4ms, 8ms}));
}

// A long answer that comes late, after its READ was asked for again, comes twice. The second copy takes as
// long as the first, and meanwhile nothing new arrives.
TEST(Recovery, AnswersThatComeTwiceAreNoSilence) {
  Solo solo;
  constexpr std::uint32_t packets = 20;
  solo.post(WrOpcode::read, packets * 1024, 1);
  solo.post(WrOpcode::read, 1024, 2);
  solo.transmit();
  const auto respond = [&](std::uint32_t i) {
    const auto opcode = i == 0             ? rc_read_response_first
                        : i + 1 == packets ? rc_read_response_last
                                           : rc_read_response_middle;
    solo.now = solo.now + 2ms;
    if (solo.qp.next_timeout() <= solo.now) solo.qp.handle_timeout(solo.now);
    solo.respond(opcode, first_sent + i, 1024);
  };
  solo.now = solo.qp.next_timeout();
  solo.qp.handle_timeout(solo.now);
  EXPECT_EQ(solo.transmit().size(), 2u);
  for (std::uint32_t i = 0; i < packets; ++i) respond(i);
  EXPECT_EQ(solo.completions().size(), 1u);
  for (std::uint32_t i = 0; i < packets; ++i) respond(i);
  EXPECT_EQ(solo.qp.counters().timeouts, 1u);
  EXPECT_EQ(solo.transmit().size(), 0u);
}

// But a peer that repeats itself for ever is given up like one that is silent.
TEST(Recovery, RepetitionsDoNotPutOffGivingUp) {
  Solo solo;
  solo.post(WrOpcode::read, 1024, 1);
  solo.post(WrOpcode::read, 1024, 2);
  solo.transmit();
  solo.respond(rc_read_response_only, first_sent, 1024);
  const TimePoint start = solo.now;
  while (solo.qp.state() == QpState::rts && solo.now - start < 100s) {
    solo.now = solo.now + 1ms;
    if (solo.qp.next_timeout() <= solo.now) solo.qp.handle_timeout(solo.now);
    solo.transmit();
    solo.respond(rc_read_response_only, first_sent, 1024);
  }
  EXPECT_EQ(solo.qp.state(), QpState::err);
  EXPECT_LT(solo.now - start, 2s);
}

TEST(Recovery, ATimeoutSendsEverythingUnacknowledgedAgain) {
  Solo solo;
  solo.post(WrOpcode::send, 3 * 1024, 1);
  solo.transmit();
  solo.ack(first_sent);
  solo.now = solo.qp.next_timeout();
  solo.qp.handle_timeout(solo.now);
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_send_middle, 1001}, {rc_send_last, 1002}}));
}

TEST(Recovery, WhatTheSocketRefusedGoesOutAsItWas) {
  Solo solo;
  const Sge sges[] = {{local_base, 1500, local_key}, {local_base + 5000, 1500, local_key}};
  SendWr wr;
  wr.signaled = true;
  wr.sges = sges;
  solo.qp.post_send(solo.now, wr);
  solo.post(WrOpcode::read, 8, 2);
  solo.post(WrOpcode::write, 8, 3);
  const auto sent = solo.transmit();
  ASSERT_EQ(sent.size(), 5u);
  for (std::size_t kept = 5; kept-- != 0;) {
    solo.qp.transmit_refused(solo.now, std::span(sent).subspan(kept));
    EXPECT_TRUE(solo.qp.wants_transmit(solo.now));
    const auto again = solo.transmit();
    ASSERT_EQ(again.size(), sent.size() - kept);
    for (std::size_t i = 0; i < again.size(); ++i) {
      const TxDesc& want = sent[kept + i];
      EXPECT_EQ(again[i].headers, want.headers);
      EXPECT_EQ(again[i].ref_count, want.ref_count);
      EXPECT_EQ(solo.payload_of(again[i]), solo.payload_of(want));
      EXPECT_FALSE(again[i].must_copy);
    }
  }
  EXPECT_EQ(solo.qp.counters().packets_sent, 5u);
  EXPECT_EQ(solo.qp.counters().retransmitted_packets, 0u);
}

TEST(Recovery, ARequestThatCannotBeReadFailsAfterThoseBeforeIt) {
  Solo solo;
  solo.post(WrOpcode::send, 8, 1);
  solo.post(WrOpcode::send, 2048, 2);
  solo.post(WrOpcode::send, 8, 3);
  const auto sent = solo.transmit();
  ASSERT_EQ(sent.size(), 4u);
  solo.qp.transmit_fault(solo.now, sent[2]);
  EXPECT_EQ(solo.qp.state(), QpState::rts) << "the first may still succeed";
  EXPECT_TRUE(solo.transmit().empty());
  solo.ack(first_sent);
  EXPECT_EQ(
      statuses(solo.completions()),
      (Statuses{{1, WcStatus::success}, {2, WcStatus::local_protection_error}, {3, WcStatus::flushed}}));
  EXPECT_EQ(solo.qp.state(), QpState::err);
}

TEST(Recovery, ABadLocalKeyFailsInOrder) {
  Solo solo;
  solo.post(WrOpcode::send, 8, 1);
  solo.post(WrOpcode::send, 8, 2, Key{0xBAD});
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_send_only, 1000}}));
  EXPECT_FALSE(solo.qp.wants_transmit(solo.now));
  EXPECT_TRUE(solo.completions().empty());
  // The wait for the first request goes on, with retransmissions.
  solo.now = solo.qp.next_timeout();
  solo.qp.handle_timeout(solo.now);
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_send_only, 1000}}));
  solo.ack(first_sent);
  EXPECT_EQ(statuses(solo.completions()),
            (Statuses{{1, WcStatus::success}, {2, WcStatus::local_protection_error}}));
}

TEST(Recovery, AReadIntoMemoryThatMayNotBeWrittenFails) {
  Solo solo;
  solo.post(WrOpcode::read, 8, 1, read_only_key);
  EXPECT_TRUE(solo.transmit().empty());
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::local_protection_error}}));
}

TEST(Recovery, ARegionThatGoesAwayDuringAReadFailsIt) {
  Solo solo;
  solo.post(WrOpcode::read, 2048, 1);
  solo.transmit();
  solo.respond(rc_read_response_first, first_sent, 1024);
  solo.memory.remove(local_key);
  solo.respond(rc_read_response_last, first_sent + 1, 1024);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::local_protection_error}}));
}

}  // namespace
}  // namespace beeline::proto::testing
