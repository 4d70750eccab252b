// An acknowledgement that waits for a request to leave with: never longer than said, and only where
// requests come.

#include "proto/reliability/ack_hold.h"

#include <gtest/gtest.h>

#include "proto/testing/pair.h"
#include "proto/testing/solo.h"

namespace beeline::proto::testing {
namespace {

using enum wire::Opcode;

class Answering : public ::testing::Test {
 protected:
  void SetUp() override {
    solo_.qp.allow_ack_hold(true);
    solo_.qp.set_ack_last(true);
    for (std::uint64_t i = 0; i < 16; ++i) ASSERT_EQ(solo_.receive(2048, i), PostResult::ok);
  }
  void packet(wire::Opcode opcode, std::uint32_t bytes) {
    solo_.request(opcode, next_, bytes);
    ++next_;
  }
  // The next message of the peer, of one packet.
  void message() { packet(rc_send_only, 8); }
  Outline leaving() { return outline(solo_.transmit()); }
  Psn last() const { return next_ - 1; }

  Solo solo_;
  Psn next_ = first_received;
};

TEST_F(Answering, TheMessageIsThereBeforeItsAck) {
  message();
  EXPECT_EQ(solo_.completions().size(), 1u);
  EXPECT_FALSE(solo_.qp.wants_transmit(solo_.now));
  EXPECT_TRUE(solo_.qp.holds_ack(solo_.now));
  EXPECT_EQ(solo_.qp.next_timeout(), solo_.now + ack_hold);
}

TEST_F(Answering, TheAckLeavesBehindTheAnswer) {
  message();
  solo_.now = solo_.now + 1us;
  ASSERT_EQ(solo_.post(WrOpcode::send, 4), PostResult::ok);
  EXPECT_EQ(leaving(), (Outline{{rc_send_only, first_sent.value}, {rc_acknowledge, last().value}}));
  EXPECT_FALSE(solo_.qp.holds_ack(solo_.now));
  EXPECT_EQ(leaving(), Outline{});
}

TEST_F(Answering, OrBeforeItWhereThereAreNoTrains) {
  solo_.qp.set_ack_last(false);
  message();
  ASSERT_EQ(solo_.post(WrOpcode::send, 4), PostResult::ok);
  EXPECT_EQ(leaving(), (Outline{{rc_acknowledge, last().value}, {rc_send_only, first_sent.value}}));
}

TEST_F(Answering, WithoutAnAnswerItLeavesWhenItsTimeIsOver) {
  message();
  solo_.now = solo_.now + ack_hold - 1ns;
  EXPECT_EQ(leaving(), Outline{});
  solo_.now = solo_.qp.next_timeout();
  solo_.qp.handle_timeout(solo_.now);
  ASSERT_TRUE(solo_.qp.wants_transmit(solo_.now));
  EXPECT_EQ(leaving(), (Outline{{rc_acknowledge, last().value}}));
  EXPECT_EQ(solo_.qp.next_timeout(), TimePoint::never());
  EXPECT_EQ(solo_.qp.counters().timeouts, 0u);
}

TEST_F(Answering, ItLeavesAtOnceWhenTheProgramNoLongerDrives) {
  message();
  solo_.qp.allow_ack_hold(false);
  EXPECT_TRUE(solo_.qp.wants_transmit(solo_.now));
  EXPECT_EQ(leaving(), (Outline{{rc_acknowledge, last().value}}));
}

TEST_F(Answering, MoreMessagesDoNotMakeItWaitLonger) {
  message();
  const TimePoint due = solo_.qp.next_timeout();
  solo_.now = solo_.now + ack_hold / 2;
  message();
  EXPECT_EQ(solo_.qp.next_timeout(), due);
  solo_.now = due;
  EXPECT_EQ(leaving(), (Outline{{rc_acknowledge, last().value}}));
}

TEST_F(Answering, MessagesOfSeveralPacketsAreAcknowledgedAtOnce) {
  message();
  EXPECT_FALSE(solo_.qp.wants_transmit(solo_.now));
  packet(rc_send_first, 1024);
  packet(rc_send_last, 8);
  EXPECT_EQ(leaving(), (Outline{{rc_acknowledge, last().value}}));
}

TEST_F(Answering, ARepetitionIsAcknowledgedAtOnce) {
  message();
  solo_.request(rc_send_only, last(), 8);
  EXPECT_EQ(leaving(), (Outline{{rc_acknowledge, last().value}}));
}

// Should the path be one that trains do not survive, the last one went with one.
TEST_F(Answering, AndBeforeRequestsNotBehindThem) {
  message();
  ASSERT_EQ(solo_.post(WrOpcode::send, 4), PostResult::ok);
  leaving();
  solo_.request(rc_send_only, last(), 8);
  ASSERT_EQ(solo_.post(WrOpcode::send, 4), PostResult::ok);
  EXPECT_EQ(leaving(), (Outline{{rc_acknowledge, last().value}, {rc_send_only, first_sent.value + 1}}));
}

TEST_F(Answering, AGapIsReportedAtOnceAndSpeaksForTheAck) {
  message();
  solo_.request(rc_send_only, next_ + 1, 8);
  const auto descs = solo_.transmit();
  ASSERT_EQ(descs.size(), 1u);
  EXPECT_EQ(descs[0].headers.aeth.kind(), wire::AckKind::nak);
  EXPECT_EQ(descs[0].headers.bth.psn, next_);
  EXPECT_FALSE(solo_.qp.holds_ack(solo_.now));
}

TEST_F(Answering, WhereNobodyAnswersItSoonLeavesAtOnce) {
  for (int i = 0; i < 2; ++i) {
    message();
    solo_.now = solo_.now + ack_hold;
    EXPECT_EQ(leaving().size(), 1u);
  }
  for (int i = 0; i < 8; ++i) {
    message();
    EXPECT_EQ(leaving(), (Outline{{rc_acknowledge, last().value}})) << i;
    solo_.now = solo_.now + 2 * ack_hold;
  }
}

TEST_F(Answering, WhenAnswersComeAgainItWaitsAgain) {
  for (int i = 0; i < 3; ++i) {
    message();
    solo_.now = solo_.now + ack_hold;
    leaving();
  }
  int alone = 0;
  for (int i = 0; i < 5; ++i) {
    message();
    alone += leaving().empty() ? 0 : 1;
    solo_.now = solo_.now + 2us;
    ASSERT_EQ(solo_.post(WrOpcode::send, 4), PostResult::ok);
    leaving();
    solo_.now = solo_.now + 2us;
    solo_.ack(first_sent + static_cast<std::uint32_t>(i));
  }
  EXPECT_GE(alone, 1);
  EXPECT_LE(alone, 3);
}

TEST_F(Answering, ASmallBatchKeepsAPlaceForIt) {
  message();
  for (int i = 0; i < 4; ++i) ASSERT_EQ(solo_.post(WrOpcode::send, 4), PostResult::ok);
  EXPECT_EQ(outline(solo_.transmit(2)),
            (Outline{{rc_send_only, first_sent.value}, {rc_acknowledge, last().value}}));
  message();
  EXPECT_EQ(solo_.transmit(1).size(), 1u);
  EXPECT_EQ(solo_.transmit(1).size(), 1u);
}

TEST_F(Answering, WhatTheSocketRefusesLeavesLater) {
  message();
  ASSERT_EQ(solo_.post(WrOpcode::send, 4), PostResult::ok);
  const auto descs = solo_.transmit();
  ASSERT_EQ(descs.size(), 2u);
  solo_.qp.transmit_refused(solo_.now, descs);
  EXPECT_EQ(leaving(), (Outline{{rc_send_only, first_sent.value}, {rc_acknowledge, last().value}}));
}

// Two that answer one another, on a wire that loses nothing: an answer carries the acknowledgement, and
// nothing is ever repeated.
TEST(AckHold, APingPongTakesOneBatchAMessage) {
  PairOptions options;
  WirePair pair(options);
  constexpr Key key{0x10};
  for (int side = 0; side < 2; ++side) {
    pair.memory(side).add(key, test_domain, 0x1000, 64, Access::local_write);
    pair.qp(side).allow_ack_hold(true);
    pair.qp(side).set_ack_last(true);
  }
  const Sge sge{0x1000, 8, key};
  const auto send = [&](int side) {
    SendWr wr;
    wr.opcode = WrOpcode::send;
    wr.signaled = true;
    wr.sges = std::span(&sge, 1);
    EXPECT_EQ(pair.post_send(side, wr), PostResult::ok);
  };
  for (int side = 0; side < 2; ++side)
    for (int i = 0; i < 4; ++i) ASSERT_EQ(pair.post_recv(side, {0, std::span(&sge, 1)}), PostResult::ok);
  int sent_alone = 0;
  std::uint64_t sends_done = 0;
  send(0);
  for (int i = 0; i < 100; ++i) {
    const int side = 1 - i % 2;
    bool came = false;
    ASSERT_TRUE(pair.run_until([&] {
      for (const Completion& completion : pair.poll_all(side)) {
        EXPECT_EQ(completion.status, WcStatus::success);
        came |= completion.is_receive;
        sends_done += completion.is_receive ? 0 : 1;
      }
      return came;
    }));
    sent_alone += pair.qp(side).holds_ack(pair.now()) ? 0 : 1;
    ASSERT_EQ(pair.post_recv(side, {0, std::span(&sge, 1)}), PostResult::ok);
    send(side);
  }
  pair.settle();
  EXPECT_EQ(sent_alone, 0);
  for (int side = 0; side < 2; ++side) {
    for (const Completion& completion : pair.poll_all(side)) sends_done += completion.is_receive ? 0 : 1;
    EXPECT_EQ(pair.qp(side).counters().retransmitted_packets, 0u);
    EXPECT_EQ(pair.qp(side).counters().timeouts, 0u);
    EXPECT_EQ(pair.qp(side).counters().duplicate_packets, 0u);
  }
  EXPECT_EQ(sends_done, 101u);
}

}  // namespace
}  // namespace beeline::proto::testing
