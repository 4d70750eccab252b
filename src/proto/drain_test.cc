// SQD: what has begun is finished, what is posted waits; and events beside completions.

#include <gtest/gtest.h>

#include "proto/testing/solo.h"

namespace beeline::proto::testing {
namespace {

using enum wire::Opcode;
using enum WcStatus;

void enter(Solo& solo, QpState state, bool notify = false) {
  QpAttr attributes = solo.qp.attributes();
  attributes.state = state;
  attributes.notify_drained = notify;
  const Result<void> result =
      solo.qp.modify(solo.now, attributes, attr::state | (notify ? attr::notify_drained : 0));
  ASSERT_TRUE(result) << result.error().message;
}

TEST(Drain, WhatHasBegunIsFinishedAndTheRestWaits) {
  PairOptions options = solo_options();
  options.window_bytes = 2048;  // the message is half sent when the draining begins
  Solo solo(options);
  solo.post(WrOpcode::write, 4096, 1);
  solo.post(WrOpcode::write, 4, 2);
  EXPECT_EQ(solo.transmit().size(), 2u);
  enter(solo, QpState::sqd, true);
  EXPECT_EQ(solo.qp.take_events(), QpEvent::none);
  EXPECT_EQ(solo.post(WrOpcode::write, 4, 3), PostResult::ok) << "posting is allowed";
  solo.ack(first_sent + 1);
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_write_middle, 1002}, {rc_write_last, 1003}}));
  EXPECT_EQ(solo.qp.take_events(), QpEvent::none);
  solo.ack(first_sent + 3);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, success}}));
  EXPECT_EQ(solo.qp.take_events(), QpEvent::send_queue_drained);
  EXPECT_FALSE(solo.qp.wants_transmit(solo.now));
  EXPECT_TRUE(solo.transmit().empty());
  EXPECT_EQ(solo.qp.next_timeout(), TimePoint::never());
  solo.ack(first_sent + 3);
  EXPECT_EQ(solo.qp.take_events(), QpEvent::none) << "once";
  enter(solo, QpState::rts);
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_write_only, 1004}, {rc_write_only, 1005}}));
  solo.ack(first_sent + 5);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{2, success}, {3, success}}));
}

TEST(Drain, AnIdleQueueIsDrainedAtOnce) {
  Solo solo;
  enter(solo, QpState::sqd, true);
  EXPECT_EQ(solo.qp.take_events(), QpEvent::send_queue_drained);
  enter(solo, QpState::rts);
  enter(solo, QpState::sqd);
  EXPECT_EQ(solo.qp.take_events(), QpEvent::none) << "nobody asked this time";
}

TEST(Drain, LostPacketsAreStillRepeated) {
  Solo solo;
  solo.post(WrOpcode::send, 4, 1);
  solo.transmit();
  enter(solo, QpState::sqd, true);
  solo.now = solo.qp.next_timeout();
  solo.qp.handle_timeout(solo.now);
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_send_only, 1000}}));
  solo.nak(first_sent, wire::NakCode::remote_operation);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, remote_operation_error}}));
  EXPECT_EQ(solo.qp.state(), QpState::err);
}

TEST(Drain, ReceivingGoesOn) {
  Solo solo;
  enter(solo, QpState::sqd);
  solo.receive(10, 1);
  solo.request(rc_send_only, first_received, 4);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, success}}));
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_acknowledge, 5000}}));
}

TEST(Drain, ChangedAttributesCountFromThenOn) {
  PairOptions options = solo_options();
  options.attributes.max_rd_atomic = 1;
  options.attributes.timeout = 0;
  Solo solo(options);
  solo.post(WrOpcode::read, 4, 1);
  solo.transmit();
  enter(solo, QpState::sqd);
  QpAttr attributes = solo.qp.attributes();
  attributes.state = QpState::sqd;
  attributes.max_rd_atomic = 4;
  attributes.timeout = 10;  // 4 ms
  attributes.retry_count = 0;
  ASSERT_TRUE(solo.qp.modify(solo.now, attributes,
                             attr::state | attr::max_rd_atomic | attr::timeout | attr::retry_count));
  EXPECT_LE(solo.qp.next_timeout(), solo.now + 5ms);
  solo.respond(rc_read_response_only, first_sent, 4);
  enter(solo, QpState::rts);
  for (std::uint64_t i = 2; i < 5; ++i) solo.post(WrOpcode::read, 4, i);
  EXPECT_EQ(solo.transmit().size(), 3u);
  while (solo.qp.state() == QpState::rts) {
    solo.now = solo.qp.next_timeout();
    solo.qp.handle_timeout(solo.now);
    solo.transmit();
  }
  EXPECT_EQ(solo.completions().at(1).status, retry_exceeded);
}

// --- events

TEST(Events, TheFirstRequestInRtrIsReportedOnce) {
  Solo solo(solo_options(), QpState::rtr);
  solo.receive(10, 1);
  EXPECT_EQ(solo.qp.take_events(), QpEvent::none);
  solo.request(rc_send_only, first_received, 4);
  EXPECT_EQ(solo.qp.take_events(), QpEvent::communication_established);
  solo.request(rc_write_only, first_received + 1, 4, 4);
  EXPECT_EQ(solo.qp.take_events(), QpEvent::none);
}

TEST(Events, InRtsNobodyNeedsToBeTold) {
  Solo solo;
  solo.receive(10, 1);
  solo.request(rc_send_only, first_received, 4);
  EXPECT_EQ(solo.qp.take_events(), QpEvent::none);
}

TEST(Events, RefusalsWithoutAReceiveRequest) {
  {
    Solo solo;
    solo.request(rc_write_last, first_received, 4);  // of a message that never began
    EXPECT_EQ(solo.qp.take_events(), QpEvent::invalid_request);
  }
  {
    Solo solo;
    solo.memory.remove(remote_key);
    solo.request(rc_write_only, first_received, 4, 4);
    EXPECT_EQ(solo.qp.take_events(), QpEvent::access_violation);
  }
  {
    Solo solo;
    solo.memory.find(remote_key)->faulty = true;
    solo.request(rc_write_only, first_received, 4, 4);
    EXPECT_EQ(solo.qp.take_events(), QpEvent::fatal);
  }
}

TEST(Events, WhatACompletionTellsIsNoEvent) {
  Solo solo;
  solo.receive(3, 1);
  solo.request(rc_send_only, first_received, 4);
  EXPECT_EQ(solo.completions().at(0).status, local_length_error);
  EXPECT_EQ(solo.qp.take_events(), QpEvent::none);
}

TEST(Events, AFailingWriteWithImmediateFailsTheReceive) {
  Solo solo;
  solo.receive(10, 1);
  solo.request(rc_write_first, first_received, 1024, 1028);
  solo.memory.remove(remote_key);
  solo.request(rc_write_last_imm, first_received + 1, 4);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, local_access_error}}));
  EXPECT_EQ(solo.qp.take_events(), QpEvent::none);
  EXPECT_EQ(solo.transmit().back().headers.aeth, wire::Aeth::nak(wire::NakCode::remote_access, 0));
}

TEST(Events, ResetForgetsThem) {
  Solo solo;
  solo.request(rc_write_last, first_received, 4);
  enter(solo, QpState::reset);
  EXPECT_EQ(solo.qp.take_events(), QpEvent::none);
}

}  // namespace
}  // namespace beeline::proto::testing
