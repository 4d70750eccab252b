// Atomics, invalidation, windows and draining, lane by lane: every test here runs over the wire
// and over the in-process lane, with equal results.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "proto/testing/lanes.h"
#include "proto/testing/solo.h"

namespace beeline::proto::testing {
namespace {

using enum WcStatus;

class OnEveryLane : public ::testing::TestWithParam<LaneKind> {
 protected:
  static constexpr Access all =
      Access::local_write | Access::remote_write | Access::remote_read | Access::remote_atomic;

  void open(const PairOptions& options = {}) {
    pair = make_pair(GetParam(), options);
    for (int side = 0; side < 2; ++side) {
      pair->memory(side).add(local_key, test_domain, local_base, region_bytes, Access::local_write);
      pair->memory(side).add(remote_key, test_domain, remote_base, region_bytes, all | Access::window_bind);
      pair->memory(side).add(spare_key, test_domain, remote_base, 64, all);
    }
  }

  SendWr request(std::uint64_t id, WrOpcode opcode) {
    SendWr wr;
    wr.wr_id = id;
    wr.opcode = opcode;
    wr.signaled = true;
    wr.remote_address = remote_base;
    wr.rkey = remote_key;
    return wr;
  }
  PostResult post(SendWr wr, std::uint32_t length, int side = 0) {
    const Sge sge{local_base, length, local_key};
    wr.sges = std::span(&sge, 1);
    return pair->post_send(side, wr);
  }
  PostResult atomic(std::uint64_t id, WrOpcode opcode, std::uint64_t swap_or_add, std::uint64_t compare = 0) {
    SendWr wr = request(id, opcode);
    wr.swap_or_add = swap_or_add;
    wr.compare = compare;
    return post(wr, 8);
  }
  PostResult invalidate_local(std::uint64_t id, Key key) {
    SendWr wr = request(id, WrOpcode::local_inv);
    wr.invalidate = key;
    return pair->post_send(0, wr);
  }
  PostResult receive(std::uint64_t id, std::uint32_t length) {
    const Sge sge{local_base, length, local_key};
    return pair->post_recv(1, {id, std::span(&sge, 1)});
  }
  std::uint64_t number(int side, Key key) {
    std::uint64_t value = 0;
    std::memcpy(&value, pair->memory(side).find(key)->bytes.data(), sizeof value);
    return value;
  }
  void expect(const Statuses& sender, const Statuses& receiver) {
    pair->settle();
    EXPECT_EQ(statuses(pair->poll_all(0)), sender);
    EXPECT_EQ(statuses(pair->poll_all(1)), receiver);
  }

  std::unique_ptr<OperationPair> pair;
};

TEST_P(OnEveryLane, AtomicsAct) {
  open();
  atomic(1, WrOpcode::fetch_add, 40);
  atomic(2, WrOpcode::fetch_add, 2);
  expect({{1, success}, {2, success}}, {});
  EXPECT_EQ(number(1, remote_key), 42u);
  EXPECT_EQ(number(0, local_key), 40u);
  atomic(3, WrOpcode::compare_swap, 7, 41);
  expect({{3, success}}, {});
  EXPECT_EQ(number(1, remote_key), 42u);
  atomic(4, WrOpcode::compare_swap, 7, 42);
  expect({{4, success}}, {});
  EXPECT_EQ(number(1, remote_key), 7u);
  EXPECT_EQ(number(0, local_key), 42u);
}

TEST_P(OnEveryLane, AtomicsNeedTheQueuePairsRight) {
  PairOptions options;
  options.attributes.access = Access::local_write | Access::remote_write | Access::remote_read;
  open(options);
  atomic(1, WrOpcode::fetch_add, 1);
  expect({{1, remote_invalid_request}}, {});
  EXPECT_EQ(number(1, remote_key), 0u);
}

TEST_P(OnEveryLane, AtomicsNeedResourcesOfBothSides) {
  for (const bool ours : {true, false}) {
    PairOptions options;
    (ours ? options.attributes.max_rd_atomic : options.attributes.max_dest_rd_atomic) = 0;
    open(options);
    atomic(1, WrOpcode::compare_swap, 1);
    expect({{1, ours ? local_qp_operation_error : remote_invalid_request}}, {});
    EXPECT_EQ(number(1, remote_key), 0u);
  }
}

TEST_P(OnEveryLane, AnAtomicIntoReadOnlyMemoryFailsBeforeItActs) {
  open();
  pair->memory(0).find(local_key)->access = Access::none;
  atomic(1, WrOpcode::fetch_add, 1);
  expect({{1, local_protection_error}}, {});
  EXPECT_EQ(number(1, remote_key), 0u);
}

TEST_P(OnEveryLane, ASendInvalidatesAfterItsBytesArrived) {
  open();
  receive(100, 5000);
  SendWr wr = request(1, WrOpcode::send_inv);
  wr.invalidate = spare_key;
  post(wr, 5000);
  pair->settle();
  EXPECT_EQ(statuses(pair->poll_all(0)), (Statuses{{1, success}}));
  const auto received = pair->poll_all(1);
  ASSERT_EQ(statuses(received), (Statuses{{100, success}}));
  EXPECT_TRUE(received[0].has_invalidated);
  EXPECT_EQ(received[0].invalidated, spare_key);
  EXPECT_EQ(received[0].byte_length, 5000u);
  EXPECT_FALSE(received[0].has_immediate);
  EXPECT_EQ(pair->memory(1).find(spare_key), nullptr);
  EXPECT_NE(pair->memory(0).find(spare_key), nullptr) << "the peer's key, not ours";
  SendWr after = request(2, WrOpcode::write);
  after.rkey = spare_key;
  post(after, 4);
  expect({{2, remote_access_error}}, {});
}

TEST_P(OnEveryLane, ASendThatInvalidatesNothingFailsBothSides) {
  open();
  receive(100, 10);
  SendWr wr = request(1, WrOpcode::send_inv);
  wr.invalidate = Key{0xBAD};
  post(wr, 4);
  expect({{1, remote_access_error}}, {{100, remote_invalid_request}});
}

TEST_P(OnEveryLane, AnotherQueuePairsWindowCannotBeInvalidatedOrUsed) {
  open();
  pair->memory(1).find(spare_key)->user = Qpn{0x999};
  receive(100, 10);
  SendWr wr = request(1, WrOpcode::send_inv);
  wr.invalidate = spare_key;
  post(wr, 4);
  expect({{1, remote_access_error}}, {{100, remote_invalid_request}});
  for (const WrOpcode opcode : {WrOpcode::write, WrOpcode::read, WrOpcode::fetch_add}) {
    open();
    pair->memory(1).find(spare_key)->user = Qpn{0x999};
    SendWr use = request(1, opcode);
    use.rkey = spare_key;
    post(use, 8);
    expect({{1, remote_access_error}}, {});
    open();
    pair->memory(1).find(spare_key)->user = qpn_of(1);
    post(use, 8);
    expect({{1, success}}, {});
  }
}

TEST_P(OnEveryLane, LocalInvalidationActsInOrder) {
  open();
  post(request(1, WrOpcode::write), 4);
  invalidate_local(2, spare_key);
  post(request(3, WrOpcode::read), 4);
  pair->settle();
  const auto done = pair->poll_all(0);
  EXPECT_EQ(statuses(done), (Statuses{{1, success}, {2, success}, {3, success}}));
  EXPECT_EQ(done[1].opcode, WcOpcode::local_inv);
  EXPECT_EQ(pair->memory(0).find(spare_key), nullptr);
}

TEST_P(OnEveryLane, LocalInvalidationOfNothingIsAnError) {
  open();
  post(request(1, WrOpcode::write), 4);
  invalidate_local(2, Key{0xBAD});
  post(request(3, WrOpcode::write), 4);
  expect({{1, success}, {2, local_qp_operation_error}, {3, flushed}}, {});
}

TEST_P(OnEveryLane, ABindMakesAWindowForThePeer) {
  open();
  SendWr wr = request(1, WrOpcode::bind_mw);
  WindowBind bind;
  bind.window = spare_key;
  bind.new_rkey = Key{0x600};
  bind.region = remote_key;
  bind.address = remote_base;
  bind.length = 16;
  bind.access = static_cast<std::uint8_t>(Access::remote_write);
  wr.bind = &bind;
  ASSERT_EQ(pair->post_send(0, wr), PostResult::ok);
  bind = {};  // it was copied
  pair->settle();
  const auto done = pair->poll_all(0);
  ASSERT_EQ(statuses(done), (Statuses{{1, success}}));
  EXPECT_EQ(done[0].opcode, WcOpcode::bind_mw);
  SendWr use = request(2, WrOpcode::write);
  use.rkey = Key{0x600};
  post(use, 16, 1);
  pair->settle();
  EXPECT_EQ(statuses(pair->poll_all(1)), (Statuses{{2, success}}));
  post(use, 17, 1);
  pair->settle();
  EXPECT_EQ(statuses(pair->poll_all(1)), (Statuses{{2, remote_access_error}}));
}

TEST_P(OnEveryLane, ABindThatCannotBeIsABindError) {
  open();
  SendWr wr = request(1, WrOpcode::bind_mw);
  EXPECT_EQ(pair->post_send(0, wr), PostResult::invalid) << "without what it needs";
  WindowBind bind;
  bind.region = local_key;  // which may not have windows
  bind.address = local_base;
  bind.length = 16;
  wr.bind = &bind;
  ASSERT_EQ(pair->post_send(0, wr), PostResult::ok);
  expect({{1, window_bind_error}}, {});
}

TEST_P(OnEveryLane, LocalOperationsHaveNoPieces) {
  open();
  SendWr wr = request(1, WrOpcode::local_inv);
  wr.invalidate = spare_key;
  EXPECT_EQ(post(wr, 4), PostResult::invalid);
  wr.inline_data = true;
  EXPECT_EQ(pair->post_send(0, wr), PostResult::inline_too_long);
}

TEST_P(OnEveryLane, AFenceWaitsForAtomics) {
  open();
  pair->memory(1).find(remote_key)->bytes[0] = std::byte{9};
  atomic(1, WrOpcode::fetch_add, 0);
  SendWr forward = request(2, WrOpcode::write);
  forward.remote_address = remote_base + 64;
  forward.fence = true;
  post(forward, 8);
  expect({{1, success}, {2, success}}, {});
  EXPECT_EQ(pair->memory(1).find(remote_key)->bytes[64], std::byte{9});
}

TEST_P(OnEveryLane, InSqdWhatIsPostedWaits) {
  open();
  QpAttr attributes;
  attributes.state = QpState::sqd;
  ASSERT_TRUE(pair->modify(0, attributes, attr::state));
  EXPECT_EQ(post(request(1, WrOpcode::write), 4), PostResult::ok);
  EXPECT_EQ(invalidate_local(2, spare_key), PostResult::ok);
  expect({}, {});
  EXPECT_NE(pair->memory(0).find(spare_key), nullptr);
  post(request(3, WrOpcode::write), 4, 1);
  expect({}, {{3, success}});  // answered all the same
  attributes.state = QpState::rts;
  ASSERT_TRUE(pair->modify(0, attributes, attr::state));
  expect({{1, success}, {2, success}}, {});
}

TEST_P(OnEveryLane, ARequestThatWaitsForItsReceiverHasBegun) {
  PairOptions options;
  options.attributes.rnr_retry = 7;
  open(options);
  post(request(1, WrOpcode::send), 4);
  post(request(2, WrOpcode::write), 4);
  pair->run_until([] { return false; }, 3ms);
  QpAttr attributes;
  attributes.state = QpState::sqd;
  attributes.notify_drained = true;
  ASSERT_TRUE(pair->modify(0, attributes, attr::state | attr::notify_drained));
  pair->run_until([] { return false; }, 3ms);
  EXPECT_FALSE(contains(pair->take_events(0), QpEvent::send_queue_drained));
  receive(100, 4);
  pair->settle();
  const auto done = statuses(pair->poll_all(0));
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done[0], (std::pair<std::uint64_t, WcStatus>{1, success}));
  EXPECT_EQ(pair->take_events(0), QpEvent::send_queue_drained);
}

INSTANTIATE_TEST_SUITE_P(Lanes, OnEveryLane, ::testing::ValuesIn(all_lanes), lane_name);

}  // namespace
}  // namespace beeline::proto::testing
