// What operations mean, lane by lane: every test here runs over the wire and over the
// in-process lane, with equal results.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "proto/testing/lanes.h"
#include "proto/testing/solo.h"

namespace beeline::proto::testing {
namespace {

class EveryLane : public ::testing::TestWithParam<LaneKind> {
 protected:
  void open(const PairOptions& options = {}) {
    pair = make_pair(GetParam(), options);
    constexpr Access all = Access::local_write | Access::remote_write | Access::remote_read;
    for (int side = 0; side < 2; ++side) {
      const auto fill = std::byte{static_cast<std::uint8_t>(side + 1)};
      pair->memory(side).add(local_key, test_domain, local_base, region_bytes, Access::local_write);
      pair->memory(side).add(read_only_key, test_domain, local_base, region_bytes, Access::none);
      pair->memory(side).add(remote_key, test_domain, remote_base, region_bytes, all);
      for (const Key key : {local_key, remote_key})
        std::fill(region(side, key).begin(), region(side, key).end(), fill);
    }
  }
  std::vector<std::byte>& region(int side, Key key) { return pair->memory(side).find(key)->bytes; }

  PostResult send(std::uint64_t id, WrOpcode opcode, std::uint32_t length, Key lkey = local_key,
                  Key rkey = remote_key, bool signaled = true) {
    const Sge sge{local_base, length, lkey};
    SendWr wr;
    wr.wr_id = id;
    wr.opcode = opcode;
    wr.signaled = signaled;
    wr.remote_address = remote_base;
    wr.rkey = rkey;
    wr.sges = std::span(&sge, 1);
    return pair->post_send(0, wr);
  }
  PostResult receive(std::uint64_t id, std::uint32_t length, Key lkey = local_key, int side = 1) {
    const Sge sge{local_base, length, lkey};
    return pair->post_recv(side, {id, std::span(&sge, 1)});
  }
  // What both sides got, after everything has happened.
  void expect(const Statuses& sender, const Statuses& receiver) {
    pair->settle();
    EXPECT_EQ(statuses(pair->poll_all(0)), sender);
    EXPECT_EQ(statuses(pair->poll_all(1)), receiver);
  }

  std::unique_ptr<OperationPair> pair;
};

using enum WcStatus;

TEST_P(EveryLane, AWrongRemoteKeyFailsTheRequestAndFlushesTheRest) {
  open();
  receive(100, 10);
  send(1, WrOpcode::write, 8);
  send(2, WrOpcode::write, 8, local_key, Key{0xBAD});
  send(3, WrOpcode::write, 8);
  send(4, WrOpcode::write, 8, local_key, remote_key, false);
  expect({{1, success}, {2, remote_access_error}, {3, flushed}, {4, flushed}}, {{100, flushed}});
  EXPECT_EQ(pair->state(0), QpState::err);
  EXPECT_EQ(pair->state(1), QpState::err);
}

TEST_P(EveryLane, AnUnsignalledRequestThatFailsCompletesAllTheSame) {
  open();
  send(1, WrOpcode::write, 8, local_key, remote_key, false);
  send(2, WrOpcode::write, 8, local_key, Key{0xBAD}, false);
  expect({{2, remote_access_error}}, {});
}

TEST_P(EveryLane, AReadOfAClosedRegionFails) {
  open();
  send(1, WrOpcode::read, 8, local_key, local_key);
  expect({{1, remote_access_error}}, {});
  EXPECT_EQ(region(0, local_key)[0], std::byte{1});
}

TEST_P(EveryLane, AWrongLocalKeyFailsInOrder) {
  open();
  receive(100, 10);
  receive(101, 10);
  send(1, WrOpcode::send, 8);
  send(2, WrOpcode::send, 8, Key{0xBAD});
  send(3, WrOpcode::send, 8);
  pair->settle();
  EXPECT_EQ(statuses(pair->poll_all(0)), (Statuses{{1, success}, {2, local_protection_error}, {3, flushed}}));
  EXPECT_EQ(statuses(pair->poll_all(1)), (Statuses{{100, success}}));
}

TEST_P(EveryLane, AReadIntoReadOnlyMemoryFails) {
  open();
  send(1, WrOpcode::read, 8, read_only_key);
  expect({{1, local_protection_error}}, {});
}

TEST_P(EveryLane, ATooLongMessageFailsBothSides) {
  open();
  receive(100, 10);
  receive(101, 10);
  send(1, WrOpcode::send, 11);
  send(2, WrOpcode::send, 1);
  expect({{1, remote_invalid_request}, {2, flushed}}, {{100, local_length_error}, {101, flushed}});
}

TEST_P(EveryLane, AReceiveIntoReadOnlyMemoryFailsBothSides) {
  open();
  receive(100, 10, read_only_key);
  send(1, WrOpcode::send, 10);
  expect({{1, remote_operation_error}}, {{100, local_protection_error}});
}

TEST_P(EveryLane, MissingReceivesUseUpTheRetries) {
  PairOptions options;
  options.attributes.rnr_retry = 3;
  options.attributes.min_rnr_timer = 14;  // 1.28 ms
  open(options);
  send(1, WrOpcode::send, 10);
  send(2, WrOpcode::send, 10);
  const TimePoint begin = pair->now();
  expect({{1, rnr_retry_exceeded}, {2, flushed}}, {});
  EXPECT_GE(pair->now() - begin, 3 * 1280us);
}

TEST_P(EveryLane, ALateReceiveIsWaitedFor) {
  open();
  send(1, WrOpcode::send, 5000);
  send(2, WrOpcode::write_imm, 0);
  EXPECT_FALSE(pair->run_until([&] { return !pair->poll_all(0).empty(); }, 50ms));
  receive(100, 5000);
  receive(101, 0);
  expect({{1, success}, {2, success}}, {{100, success}, {101, success}});
}

TEST_P(EveryLane, WhatTheQueuePairDoesNotGrantIsAnInvalidRequest) {
  for (const WrOpcode opcode : {WrOpcode::write, WrOpcode::read}) {
    PairOptions options;
    options.attributes.access = Access::local_write;
    open(options);
    send(1, opcode, 8);
    expect({{1, remote_invalid_request}}, {});
  }
}

TEST_P(EveryLane, WithoutReadResourcesAtThePeerAReadIsRefused) {
  PairOptions options;
  options.attributes.max_dest_rd_atomic = 0;
  open(options);
  send(1, WrOpcode::read, 8);
  expect({{1, remote_invalid_request}}, {});
}

TEST_P(EveryLane, AFaultAtThePeerIsAnOperationError) {
  for (const WrOpcode opcode : {WrOpcode::write, WrOpcode::read}) {
    open();
    pair->memory(1).find(remote_key)->faulty = true;
    send(1, opcode, 8);
    expect({{1, remote_operation_error}}, {});
    EXPECT_EQ(region(0, local_key)[0], std::byte{1}) << "never garbage";
  }
}

TEST_P(EveryLane, AFaultOnThisSideIsAProtectionError) {
  for (const WrOpcode opcode : {WrOpcode::send, WrOpcode::read}) {
    open();
    receive(100, 8);
    pair->memory(0).find(local_key)->faulty = true;
    send(1, opcode, 8);
    pair->settle();
    EXPECT_EQ(statuses(pair->poll_all(0)), (Statuses{{1, local_protection_error}}));
  }
}

TEST_P(EveryLane, EmptyOperationsNeedNoKeys) {
  open();
  receive(100, 0, Key{0xBAD});
  receive(101, 0, Key{0xBAD});
  send(1, WrOpcode::send, 0, Key{0xBAD}, Key{0xBAD});
  send(2, WrOpcode::write, 0, Key{0xBAD}, Key{0xBAD});
  send(3, WrOpcode::read, 0, Key{0xBAD}, Key{0xBAD});
  send(4, WrOpcode::write_imm, 0, Key{0xBAD}, Key{0xBAD});
  expect({{1, success}, {2, success}, {3, success}, {4, success}}, {{100, success}, {101, success}});
}

TEST_P(EveryLane, PostingIsChecked) {
  PairOptions options;
  options.limits = {
      .send_depth = 2, .receive_depth = 1, .send_sges = 2, .receive_sges = 1, .inline_bytes = 8};
  open(options);
  const Sge sge{local_base, 4, local_key};
  const Sge three[] = {sge, sge, sge};
  const Sge huge[] = {{local_base, 0x80000000u, local_key}, {local_base, 1, local_key}};
  SendWr wr;
  wr.sges = three;
  EXPECT_EQ(pair->post_send(0, wr), PostResult::too_many_sges);
  EXPECT_EQ(pair->post_recv(0, {1, std::span(three).first(2)}), PostResult::too_many_sges);
  wr.sges = huge;
  EXPECT_EQ(pair->post_send(0, wr), PostResult::too_long);
  std::array<std::byte, 9> bytes{};
  const Sge nine{reinterpret_cast<std::uintptr_t>(bytes.data()), 9, {}};
  wr.inline_data = true;
  wr.sges = std::span(&nine, 1);
  EXPECT_EQ(pair->post_send(0, wr), PostResult::inline_too_long);
  wr.opcode = WrOpcode::read;
  wr.sges = std::span(&sge, 1);
  EXPECT_EQ(pair->post_send(0, wr), PostResult::inline_too_long);
  EXPECT_EQ(receive(1, 4), PostResult::ok);
  EXPECT_EQ(receive(2, 4), PostResult::queue_full);
}

TEST_P(EveryLane, ACompletionKeepsItsPlaceUntilItIsPolled) {
  PairOptions options;
  options.limits.send_depth = 2;
  open(options);
  EXPECT_EQ(send(1, WrOpcode::write, 4), PostResult::ok);
  EXPECT_EQ(send(2, WrOpcode::write, 4), PostResult::ok);
  EXPECT_EQ(send(3, WrOpcode::write, 4), PostResult::queue_full);
  pair->settle();
  EXPECT_EQ(send(3, WrOpcode::write, 4), PostResult::queue_full);
  EXPECT_EQ(pair->poll_all(0).size(), 2u);
  EXPECT_EQ(send(3, WrOpcode::write, 4), PostResult::ok);
}

TEST_P(EveryLane, InErrorWhatIsPostedIsFlushed) {
  PairOptions options;
  options.limits.send_depth = 2;
  open(options);
  send(1, WrOpcode::write, 8, local_key, Key{0xBAD});
  pair->settle();
  EXPECT_EQ(statuses(pair->poll_all(0)), (Statuses{{1, remote_access_error}}));
  EXPECT_EQ(send(2, WrOpcode::write, 8), PostResult::ok);
  EXPECT_EQ(receive(3, 8, local_key, 0), PostResult::ok);
  EXPECT_EQ(send(4, WrOpcode::write, 8), PostResult::ok);
  EXPECT_EQ(send(5, WrOpcode::write, 8), PostResult::queue_full) << "bounded, even in error";
  EXPECT_EQ(statuses(pair->poll_all(0)), (Statuses{{2, flushed}, {3, flushed}, {4, flushed}}));
}

INSTANTIATE_TEST_SUITE_P(Lanes, EveryLane, ::testing::ValuesIn(all_lanes), lane_name);

TEST(QueuePair, PostsByState) {
  const PairOptions options;
  struct Row {
    QpState state;
    PostResult send, receive;
  };
  const Row rows[] = {{QpState::reset, PostResult::bad_state, PostResult::bad_state},
                      {QpState::init, PostResult::bad_state, PostResult::ok},
                      {QpState::rtr, PostResult::bad_state, PostResult::ok},
                      {QpState::rts, PostResult::ok, PostResult::ok}};
  for (const Row& row : rows) {
    Solo solo(options, row.state);
    EXPECT_EQ(solo.post(WrOpcode::send, 4), row.send);
    EXPECT_EQ(solo.receive(4), row.receive);
  }
}

TEST(QueuePair, ResetClearsEverything) {
  Solo solo;
  solo.receive(10, 1);
  solo.request(wire::Opcode::rc_send_only, first_received, 4);
  solo.post(WrOpcode::read, 4096, 2);
  solo.transmit();
  solo.read_request(first_received + 1, 4096);
  ASSERT_TRUE(solo.qp.has_completions());
  QpAttr attributes;
  ASSERT_TRUE(solo.qp.modify(solo.now, attributes, attr::state));
  EXPECT_FALSE(solo.qp.has_completions());
  EXPECT_FALSE(solo.qp.wants_transmit(solo.now));
  EXPECT_EQ(solo.qp.next_timeout(), TimePoint::never());

  PairOptions options = solo_options();
  options.first_psn = {Psn{77}, Psn{88}};
  connect(attributes_of(options, 0), QpState::rts,
          [&](const QpAttr& a, std::uint32_t mask) { return solo.qp.modify(solo.now, a, mask); });
  solo.post(WrOpcode::send, 4, 3);
  EXPECT_EQ(outline(solo.transmit()), (Outline{{wire::Opcode::rc_send_only, 77}}));
  solo.ack(Psn{77});
  solo.receive(10, 4);
  solo.request(wire::Opcode::rc_send_only, Psn{88}, 4);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{3, success}, {4, success}}));
}

TEST(QueuePair, ASilentPeerIsReportedInTime) {
  Solo solo;
  solo.post(WrOpcode::send, 4, 1);
  const TimePoint begin = solo.now;
  while (solo.qp.state() == QpState::rts) {
    solo.transmit();
    solo.now = solo.qp.next_timeout();
    solo.qp.handle_timeout(solo.now);
  }
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, retry_exceeded}}));
  EXPECT_LT(solo.now - begin, 1s);
}

}  // namespace
}  // namespace beeline::proto::testing
