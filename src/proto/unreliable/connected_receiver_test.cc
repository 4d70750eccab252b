// What an unreliable connection makes of the packets that come in.

#include "proto/unreliable/connected_receiver.h"

#include <gtest/gtest.h>

#include "proto/testing/unreliable_solo.h"

namespace beeline::proto::testing {
namespace {

using enum wire::Opcode;

class ConnectedReceiverTest : public ::testing::Test {
 protected:
  // Three packets of a SEND of 2148 bytes, from `psn`.
  void send_all(Psn psn) {
    solo.packet(uc_send_first, psn, 1024);
    solo.packet(uc_send_middle, psn + 1, 1024);
    solo.packet(uc_send_last, psn + 2, 100);
  }
  void expect_nothing() {
    EXPECT_TRUE(solo.completions().empty());
    EXPECT_EQ(solo.qp.state(), QpState::rts);
  }
  void expect_receive(std::uint64_t wr_id, std::uint32_t bytes) {
    const auto completions = solo.completions();
    ASSERT_EQ(statuses(completions), (Statuses{{wr_id, WcStatus::success}}));
    EXPECT_EQ(completions[0].byte_length, bytes);
    EXPECT_EQ(completions[0].opcode, WcOpcode::receive);
    EXPECT_FALSE(completions[0].has_grh);
  }

  UnreliableSolo solo{QpType::uc};
};

TEST_F(ConnectedReceiverTest, TakesAMessageOfSeveralPackets) {
  solo.receive(4000, 1);
  send_all(first_received);
  expect_receive(1, 2148);
  EXPECT_TRUE(solo.holds_pattern(local_key, 0, 1024));
  EXPECT_TRUE(solo.holds_pattern(local_key, 1024, 1024));
  EXPECT_TRUE(solo.holds_pattern(local_key, 2048, 100));
  EXPECT_FALSE(solo.qp.wants_transmit(solo.now));
  EXPECT_EQ(solo.qp.counters().bytes_received, 2148u);
}

TEST_F(ConnectedReceiverTest, CompletionsCarryImmediateAndSolicited) {
  solo.receive(4000, 1);
  wire::Headers headers = Solo::header(uc_send_only_imm, first_received);
  headers.bth.solicited = true;
  headers.immediate = 0xFEED;
  solo.give(headers, solo.payload(3));
  const auto completions = solo.completions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_TRUE(completions[0].has_immediate);
  EXPECT_EQ(completions[0].immediate, 0xFEEDu);
  EXPECT_TRUE(completions[0].solicited);
}

TEST_F(ConnectedReceiverTest, AGapDropsTheMessageAndKeepsItsReceive) {
  solo.receive(4000, 1);
  solo.packet(uc_send_first, first_received, 1024);
  solo.packet(uc_send_last, first_received + 2, 100);
  solo.packet(uc_send_middle, first_received + 3, 1024);
  expect_nothing();
  EXPECT_EQ(solo.qp.counters().dropped_packets, 2u);
  send_all(first_received + 4);
  expect_receive(1, 2148);
}

TEST_F(ConnectedReceiverTest, AnyFirstOrOnlyBeginsAnew) {
  solo.receive(4000, 1);
  solo.receive(4000, 2);
  solo.packet(uc_send_first, first_received, 1024);
  solo.packet(uc_send_only, first_received + 7'000'000, 8);  // far away, and in the middle of another
  expect_receive(1, 8);
  solo.packet(uc_send_middle, first_received + 1, 1024);
  expect_nothing();
  send_all(first_received - 100);  // a peer that began anew
  expect_receive(2, 2148);
}

TEST_F(ConnectedReceiverTest, AWrongOpcodeInTheMiddleDropsTheMessage) {
  for (const wire::Opcode opcode : {uc_write_middle, uc_write_last, uc_write_last_imm}) {
    solo.receive(4000, 1);
    solo.packet(uc_send_first, first_received, 1024);
    solo.packet(opcode, first_received + 1, 1024);
    solo.packet(uc_send_last, first_received + 2, 10);
    expect_nothing();
    solo.packet(uc_send_only, first_received + 3, 4);
    expect_receive(1, 4);
  }
}

TEST_F(ConnectedReceiverTest, APacketOfTheWrongSizeDropsTheMessage) {
  solo.receive(4000, 1);
  solo.packet(uc_send_first, first_received, 1000);
  solo.packet(uc_send_last, first_received + 1, 10);
  solo.packet(uc_send_only, first_received + 2, 1025);
  solo.packet(uc_send_first, first_received + 3, 1024);
  solo.packet(uc_send_last, first_received + 4, 0);
  expect_nothing();
  solo.packet(uc_send_only, first_received + 5, 0);
  expect_receive(1, 0);
}

TEST_F(ConnectedReceiverTest, WithoutAReceiveTheMessageIsDroppedWhole) {
  solo.packet(uc_send_first, first_received, 1024);
  solo.receive(4000, 1);
  solo.packet(uc_send_middle, first_received + 1, 1024);
  solo.packet(uc_send_last, first_received + 2, 100);
  expect_nothing();
  send_all(first_received + 3);
  expect_receive(1, 2148);
}

TEST_F(ConnectedReceiverTest, TooLongForAnOwnReceiveIsDropped) {
  solo.receive(1024, 1);
  send_all(first_received);
  expect_nothing();
  solo.packet(uc_send_only, first_received + 3, 1024);
  expect_receive(1, 1024);
}

TEST_F(ConnectedReceiverTest, AReceiveThatCannotBeWrittenStopsTheQueuePair) {
  solo.receive(4000, 1, read_only_key);
  solo.receive(4000, 2);
  solo.post(WrOpcode::send, 4, 3);
  solo.packet(uc_send_only, first_received, 10);
  EXPECT_EQ(
      statuses(solo.completions()),
      (Statuses{{1, WcStatus::local_protection_error}, {3, WcStatus::flushed}, {2, WcStatus::flushed}}));
  EXPECT_EQ(solo.qp.state(), QpState::err);
  solo.packet(uc_send_only, first_received + 1, 10);
  EXPECT_TRUE(solo.completions().empty());
  EXPECT_FALSE(solo.qp.wants_transmit(solo.now));
}

TEST_F(ConnectedReceiverTest, WritesLandWhereTheyShould) {
  solo.packet(uc_write_first, first_received, 1024, 1500);
  solo.packet(uc_write_last, first_received + 1, 476);
  expect_nothing();
  EXPECT_TRUE(solo.holds_pattern(remote_key, 0, 1024));
  EXPECT_TRUE(solo.holds_pattern(remote_key, 1024, 476));
  EXPECT_EQ(solo.qp.counters().dropped_packets, 0u);
}

TEST_F(ConnectedReceiverTest, AWriteWithImmediateTakesAReceive) {
  solo.receive(0, 1);
  solo.packet(uc_write_first, first_received, 1024, 1500);
  solo.packet(uc_write_last_imm, first_received + 1, 476);
  const auto completions = solo.completions();
  ASSERT_EQ(statuses(completions), (Statuses{{1, WcStatus::success}}));
  EXPECT_EQ(completions[0].opcode, WcOpcode::receive_write_imm);
  EXPECT_EQ(completions[0].byte_length, 1500u);
  EXPECT_EQ(completions[0].immediate, 0x5EEDu);
}

TEST_F(ConnectedReceiverTest, AWriteWithImmediateWithoutAReceiveIsDropped) {
  const auto before = solo.memory.find(remote_key)->bytes;
  solo.packet(uc_write_only_imm, first_received, 8, 8);
  expect_nothing();
  EXPECT_EQ(solo.memory.find(remote_key)->bytes, before);
  EXPECT_EQ(solo.qp.counters().dropped_packets, 1u);
}

TEST_F(ConnectedReceiverTest, AccessViolationsAreDroppedInSilence) {
  const auto remote = solo.memory.find(remote_key)->bytes;
  struct Row {
    Key key;
    std::uint64_t address;
    std::uint32_t length;
  };
  for (const Row& row : {Row{Key{0x999}, remote_base, 8}, Row{local_key, local_base, 8},
                         Row{foreign_key, remote_base, 8}, Row{remote_key, remote_base + region_bytes - 7, 8},
                         Row{remote_key, ~std::uint64_t{0}, 8}, Row{remote_key, remote_base, 9},
                         Row{remote_key, remote_base, 7}, Row{remote_key, remote_base, 0x8000'0001}}) {
    wire::Headers headers = Solo::header(uc_write_only, first_received);
    headers.reth = {row.address, row.key, row.length};
    solo.give(headers, solo.payload(8));
    expect_nothing();
    EXPECT_EQ(solo.memory.find(remote_key)->bytes, remote);
  }
  EXPECT_EQ(solo.qp.counters().dropped_packets, 8u);
  EXPECT_FALSE(solo.qp.wants_transmit(solo.now));
}

TEST_F(ConnectedReceiverTest, AWriteStopsWhenItsRegionGoesOrItsLengthIsExceeded) {
  solo.packet(uc_write_first, first_received, 1024, 2000);
  solo.packet(uc_write_middle, first_received + 1, 1024);  // 2048 of 2000
  solo.packet(uc_write_first, first_received + 2, 1024, 2048);
  solo.memory.remove(remote_key);
  solo.packet(uc_write_last, first_received + 3, 1024);
  expect_nothing();
  EXPECT_EQ(solo.qp.counters().dropped_packets, 2u);
}

TEST_F(ConnectedReceiverTest, WithoutTheRightToBeWrittenToNothingIs) {
  PairOptions options = unreliable_options(QpType::uc);
  options.attributes.access = Access::local_write | Access::remote_read;
  Solo closed(options);
  wire::Headers headers = Solo::header(uc_write_only, first_received);
  headers.reth.length = 8;
  closed.give(headers, closed.payload(8));
  EXPECT_FALSE(closed.holds_pattern(remote_key, 0, 8));
  EXPECT_EQ(closed.qp.counters().dropped_packets, 1u);
}

TEST_F(ConnectedReceiverTest, TheFirstMessageBeforeReadyToSendIsReported) {
  UnreliableSolo ready(QpType::uc, QpState::rtr);
  ready.receive(100, 1);
  EXPECT_EQ(ready.qp.take_events(), QpEvent::none);
  ready.packet(uc_send_only, first_received, 4);
  EXPECT_EQ(ready.qp.take_events(), QpEvent::communication_established);
  EXPECT_EQ(ready.completions().size(), 1u);
}

// --- with a shared receive queue

struct ConnectedSharedReceives : ::testing::Test {
  PostResult receive(std::uint32_t length, std::uint64_t wr_id, Key lkey = local_key) {
    const Sge sge{local_base, length, lkey};
    return shared.post({wr_id, std::span(&sge, 1)});
  }

  SharedReceiveQueue shared{16, 4, no_limit, nullptr};
  UnreliableSolo solo{QpType::uc, QpState::rts, &shared};
};

TEST_F(ConnectedSharedReceives, ABrokenMessageLeavesItsRequestToTheNext) {
  receive(4000, 1);
  receive(4000, 2);
  solo.packet(uc_send_first, first_received, 1024);
  solo.packet(uc_send_last, first_received + 2, 100);
  EXPECT_TRUE(solo.completions().empty());
  solo.packet(uc_send_only, first_received + 3, 7);
  solo.packet(uc_send_only, first_received + 4, 8);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::success}, {2, WcStatus::success}}));
}

TEST_F(ConnectedSharedReceives, TooLongEndsTheRequestWithAnError) {
  receive(1024, 1);
  receive(4000, 2);
  solo.packet(uc_send_first, first_received, 1024);
  solo.packet(uc_send_middle, first_received + 1, 1024);
  solo.packet(uc_send_last, first_received + 2, 100);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::local_length_error}}));
  EXPECT_EQ(solo.qp.state(), QpState::rts);
  solo.packet(uc_send_only, first_received + 3, 1024);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{2, WcStatus::success}}));
}

TEST_F(ConnectedSharedReceives, ErrorFlushesOnlyTheRequestThatIsHeld) {
  receive(4000, 1);
  receive(4000, 2);
  solo.packet(uc_send_first, first_received, 1024);
  ASSERT_TRUE(solo.go(QpState::err));
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::flushed}}));
  std::uint64_t wr_id = 0;
  std::array<Sge, max_sge> sges;
  std::size_t count = 0;
  ASSERT_TRUE(shared.take(wr_id, sges, count));
  EXPECT_EQ(wr_id, 2u);
}

}  // namespace
}  // namespace beeline::proto::testing
