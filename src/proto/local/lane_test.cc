// What only the lane through shared memory has: its ends, and bytes that are copied from process to process.
#include "proto/local/lane.h"

#include <gtest/gtest.h>

#include "proto/testing/solo.h"

namespace beeline::proto::testing {
namespace {

class SharedLane : public ::testing::Test {
 protected:
  static constexpr std::uint32_t large = 300'000;

  SharedLane() {
    constexpr Access all = Access::local_write | Access::remote_write | Access::remote_read;
    for (int side = 0; side < 2; ++side) {
      pair.memory(side).add(local_key, test_domain, local_base, large, Access::local_write);
      pair.memory(side).add(remote_key, test_domain, remote_base, large, all);
    }
  }
  PostResult post(int side, WrOpcode opcode, std::uint32_t length, std::uint64_t id = 1,
                  bool placed = false) {
    const Sge sge{local_base, length, local_key};
    SendWr wr;
    wr.wr_id = id;
    wr.opcode = opcode;
    wr.signaled = true;
    wr.placed = placed;
    wr.remote_address = remote_base;
    wr.rkey = remote_key;
    wr.sges = std::span(&sge, 1);
    return pair.post_send(side, wr);
  }
  void to_error(int side) {
    QpAttr attributes;
    attributes.state = QpState::err;
    ASSERT_TRUE(pair.modify(side, attributes, attr::state));
  }
  // Nobody claims to have work, or time to wait for, for ever.
  void expect_quiet() {
    for (int i = 0; i < 1000 && pair.step(); ++i) {
    }
    for (int side = 0; side < 2; ++side) {
      EXPECT_FALSE(pair.qp(side).has_local_work()) << side;
      EXPECT_EQ(pair.qp(side).next_local_timeout(), TimePoint::never()) << side;
    }
  }
  Statuses outcome(int side) { return statuses(pair.poll_all(side)); }

  SharedMemoryPair pair{PairOptions{}};
};

TEST_F(SharedLane, AnEndInErrorIsQuietWhateverIsUnderWay) {
  for (std::uint64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(post(0, WrOpcode::write, 100, i), PostResult::ok);
    ASSERT_EQ(post(1, WrOpcode::write, 100, i), PostResult::ok);
  }
  to_error(0);
  expect_quiet();
  EXPECT_EQ(outcome(0), (Statuses{{0, WcStatus::flushed},
                                  {1, WcStatus::flushed},
                                  {2, WcStatus::flushed},
                                  {3, WcStatus::flushed},
                                  {4, WcStatus::flushed},
                                  {5, WcStatus::flushed},
                                  {6, WcStatus::flushed},
                                  {7, WcStatus::flushed}}));
  const Statuses peer = outcome(1);
  ASSERT_EQ(peer.size(), 8u);
  EXPECT_EQ(peer.front().second, WcStatus::retry_exceeded);
  EXPECT_EQ(peer.back().second, WcStatus::flushed);
}

TEST_F(SharedLane, AnEndInErrorIsQuietInTheMiddleOfALargeRead) {
  ASSERT_EQ(post(0, WrOpcode::read, large), PostResult::ok);
  (void)pair.qp(1).step_local(pair.now());
  (void)pair.qp(0).step_local(pair.now());  // a part of it
  to_error(0);
  const std::uint64_t copied = pair.copied_bytes();
  EXPECT_GT(copied, 0u);
  EXPECT_LT(copied, large);
  expect_quiet();
  EXPECT_EQ(pair.copied_bytes(), copied) << "nothing lands after the error";
}

TEST_F(SharedLane, ARequestThatWaitsForAReceiveNeedsNoTimeOnceItsSenderIsGone) {
  ASSERT_EQ(post(0, WrOpcode::send, 100), PostResult::ok);
  (void)pair.qp(1).step_local(pair.now());
  to_error(0);
  expect_quiet();
}

TEST_F(SharedLane, WhatThePeerHasDoneBeforeItWentIsDone) {
  ASSERT_EQ(post(0, WrOpcode::write, 100, 1), PostResult::ok);
  (void)pair.qp(1).step_local(pair.now());
  ASSERT_EQ(post(0, WrOpcode::write, 100, 2), PostResult::ok);
  pair.qp(0).lose_local_peer(pair.now());
  EXPECT_EQ(outcome(0), (Statuses{{1, WcStatus::success}}));
  // Not at once: its program may have what it waited for, and be about to end, too.
  const TimePoint due = pair.qp(0).next_local_timeout();
  EXPECT_GT(due, pair.now());
  EXPECT_LE(due, pair.now() + 1s);
  (void)pair.qp(0).step_local(due);
  EXPECT_EQ(outcome(0), (Statuses{{2, WcStatus::retry_exceeded}}));
}

TEST_F(SharedLane, AMessageCompletesBeforeTheReplyToIt) {
  const Sge room{local_base, 100, local_key};
  ASSERT_EQ(pair.post_recv(0, {7, std::span(&room, 1)}), PostResult::ok);
  ASSERT_EQ(pair.post_recv(1, {8, std::span(&room, 1)}), PostResult::ok);
  ASSERT_EQ(post(0, WrOpcode::send, 100, 1), PostResult::ok);
  (void)pair.qp(1).step_local(pair.now());
  ASSERT_EQ(post(1, WrOpcode::send, 100, 2), PostResult::ok);
  (void)pair.qp(0).step_local(pair.now());  // finds the answer and the reply
  EXPECT_EQ(outcome(0), (Statuses{{1, WcStatus::success}, {7, WcStatus::success}}));
}

TEST_F(SharedLane, AReadOfARegionThatGoesMeanwhileFails) {
  ASSERT_EQ(post(0, WrOpcode::read, large), PostResult::ok);
  (void)pair.qp(1).step_local(pair.now());  // offers
  (void)pair.qp(0).step_local(pair.now());  // copies a part
  // Its memory stays mapped here, as that of a process mostly does.
  pair.memory(1).find(remote_key)->access = Access::none;
  expect_quiet();
  EXPECT_EQ(outcome(0), (Statuses{{1, WcStatus::remote_operation_error}}));
}

TEST_F(SharedLane, AWriteWhoseBytesAreInPlaceIsExecutedInItsTurnWithoutThem) {
  const Sge room{local_base, 100, local_key};
  ASSERT_EQ(pair.post_recv(1, {7, std::span(&room, 1)}), PostResult::ok);
  ASSERT_EQ(pair.post_recv(1, {8, std::span(&room, 1)}), PostResult::ok);
  ASSERT_EQ(post(0, WrOpcode::send, 100, 1), PostResult::ok);
  ASSERT_EQ(post(0, WrOpcode::write_imm, large, 2, true), PostResult::ok);
  expect_quiet();
  EXPECT_EQ(pair.copied_bytes(), 0u);
  EXPECT_EQ(outcome(0), (Statuses{{1, WcStatus::success}, {2, WcStatus::success}}));
  EXPECT_EQ(outcome(1), (Statuses{{7, WcStatus::success}, {8, WcStatus::success}}));
}

TEST_F(SharedLane, BytesInPlaceAreCheckedLikeAnyOthers) {
  pair.memory(1).find(remote_key)->access = Access::local_write;
  ASSERT_EQ(post(0, WrOpcode::write_imm, large, 1, true), PostResult::ok);
  expect_quiet();
  EXPECT_EQ(outcome(0), (Statuses{{1, WcStatus::remote_access_error}}));
}

TEST_F(SharedLane, OnlyAWriteHasAPlace) {
  const Sge room{local_base, large, local_key};
  ASSERT_EQ(pair.post_recv(1, {7, std::span(&room, 1)}), PostResult::ok);
  ASSERT_EQ(post(0, WrOpcode::send, large, 1, true), PostResult::ok);
  expect_quiet();
  EXPECT_EQ(outcome(0), (Statuses{{1, WcStatus::remote_invalid_request}}));
}

// The sender's memory may be anything by now: what was copied is delivered to nobody.
TEST_F(SharedLane, ALargeSendWhoseSenderEndsMeanwhileCompletesNoReceive) {
  const Sge room{local_base, large, local_key};
  ASSERT_EQ(pair.post_recv(1, {7, std::span(&room, 1)}), PostResult::ok);
  ASSERT_EQ(post(0, WrOpcode::send, large), PostResult::ok);
  (void)pair.qp(1).step_local(pair.now());
  EXPECT_LT(pair.copied_bytes(), large);
  to_error(0);
  expect_quiet();
  EXPECT_TRUE(outcome(1).empty());
}

}  // namespace
}  // namespace beeline::proto::testing
