// What UC and UD queue pairs send, and when their send requests complete.

#include "proto/unreliable/sender.h"

#include <gtest/gtest.h>

#include "proto/testing/unreliable_solo.h"

namespace beeline::proto::testing {
namespace {

using enum wire::Opcode;

constexpr std::array both_types = {QpType::uc, QpType::ud};

TEST(UnreliableSender, SegmentsByThePathMtu) {
  UnreliableSolo solo(QpType::uc);
  ASSERT_EQ(solo.post(WrOpcode::send, 3000), PostResult::ok);
  ASSERT_EQ(solo.post(WrOpcode::send_imm, 1025), PostResult::ok);
  ASSERT_EQ(solo.post(WrOpcode::write, 2048), PostResult::ok);
  ASSERT_EQ(solo.post(WrOpcode::write_imm, 2049), PostResult::ok);
  const auto sent = solo.transmit();
  EXPECT_EQ(outline(sent), (Outline{{uc_send_first, 1000},
                                    {uc_send_middle, 1001},
                                    {uc_send_last, 1002},
                                    {uc_send_first, 1003},
                                    {uc_send_last_imm, 1004},
                                    {uc_write_first, 1005},
                                    {uc_write_last, 1006},
                                    {uc_write_first, 1007},
                                    {uc_write_middle, 1008},
                                    {uc_write_last_imm, 1009}}));
  EXPECT_EQ(sent[2].payload_bytes, 3000u - 2048);
  EXPECT_EQ(sent[4].headers.immediate, 0xABCDu);
  EXPECT_EQ(sent[4].headers.bth.pad_count, 3);
  EXPECT_EQ(sent[5].headers.reth, (wire::Reth{remote_base, Key{0x77}, 2048}));
  for (const TxDesc& desc : sent) {
    EXPECT_FALSE(desc.headers.bth.ack_request);
    EXPECT_EQ(desc.headers.bth.destination, qpn_of(1));
    EXPECT_EQ(desc.path, nullptr);
  }
  const auto& local = solo.memory.find(local_key)->bytes;
  EXPECT_EQ(solo.payload_of(sent[1]), std::vector(local.begin() + 1024, local.begin() + 2048));
  EXPECT_EQ(solo.qp.next_timeout(), TimePoint::never());
}

TEST(UnreliableSender, SmallMessagesAreOnePacket) {
  UnreliableSolo solo(QpType::uc);
  for (const WrOpcode opcode : {WrOpcode::send, WrOpcode::send_imm, WrOpcode::write, WrOpcode::write_imm})
    ASSERT_EQ(solo.post(opcode, 1024), PostResult::ok);
  ASSERT_EQ(solo.post(WrOpcode::send, 0), PostResult::ok);
  EXPECT_EQ(outline(solo.transmit()), (Outline{{uc_send_only, 1000},
                                               {uc_send_only_imm, 1001},
                                               {uc_write_only, 1002},
                                               {uc_write_only_imm, 1003},
                                               {uc_send_only, 1004}}));
}

TEST(UnreliableSender, ADatagramGoesWhereItsRequestSays) {
  UnreliableSolo solo(QpType::ud);
  solo.target.path.source_port = 0xC001;
  ASSERT_EQ(solo.post(WrOpcode::send, 5), PostResult::ok);
  solo.target = target_of(Qpn{7}, 0x8000'0000);  // the queue pair's own Q_Key
  solo.target.path.source_port = 0xC002;
  ASSERT_EQ(solo.post(WrOpcode::send_imm, 0), PostResult::ok);
  solo.target = {};
  const auto sent = solo.transmit();
  EXPECT_EQ(outline(sent), (Outline{{ud_send_only, 1000}, {ud_send_only_imm, 1001}}));
  EXPECT_EQ(sent[0].headers.deth, (wire::Deth{other_qkey, qpn_of(0)}));
  EXPECT_EQ(sent[0].headers.bth.destination, peer_qpn);
  EXPECT_EQ(sent[0].headers.bth.pad_count, 3);
  ASSERT_NE(sent[0].path, nullptr);
  EXPECT_EQ(sent[0].path->source_port, 0xC001);
  EXPECT_EQ(sent[1].headers.deth, (wire::Deth{own_qkey, qpn_of(0)}));
  EXPECT_EQ(sent[1].headers.bth.destination, Qpn{7});
  ASSERT_NE(sent[1].path, nullptr);
  EXPECT_EQ(sent[1].path->source_port, 0xC002);
}

TEST(UnreliableSender, RefusesWhatTheTypeDoesNotOffer) {
  constexpr std::uint32_t offered_uc = 0b1111, offered_ud = 0b0011;  // send, send_imm, write, write_imm
  const WindowBind bind{};
  for (const QpType type : both_types) {
    for (unsigned opcode = 0; opcode < 12; ++opcode) {
      UnreliableSolo solo(type);
      SendWr wr = solo.request_of(static_cast<WrOpcode>(opcode));
      wr.bind = &bind;
      const bool offered = ((type == QpType::uc ? offered_uc : offered_ud) >> opcode & 1) != 0;
      EXPECT_EQ(solo.qp.post_send(solo.now, wr), offered ? PostResult::ok : PostResult::invalid) << opcode;
      EXPECT_EQ(solo.transmit().size(), offered ? 1u : 0u);
    }
  }
}

TEST(UnreliableSender, RefusesDatagramsThatCannotBeSent) {
  UnreliableSolo solo(QpType::ud);
  EXPECT_EQ(solo.post(WrOpcode::send, 4097), PostResult::too_long);
  EXPECT_EQ(solo.post(WrOpcode::send, 4096), PostResult::ok);
  solo.target.remote_qpn = Qpn{0x100'0000};
  EXPECT_EQ(solo.post(WrOpcode::send, 1), PostResult::invalid);
  SendWr wr = solo.request_of(WrOpcode::send);
  wr.target = nullptr;
  EXPECT_EQ(solo.qp.post_send(solo.now, wr), PostResult::invalid);
  EXPECT_EQ(solo.transmit().size(), 1u);
}

TEST(UnreliableSender, TheMtuOfDatagramsIsTheCards) {
  TestMemory memory;
  QpSetup setup{qpn_of(0), test_domain, solo_options().limits, &memory, 1000, QpType::ud};
  setup.datagram_mtu_bytes = 1024;
  QueuePair qp(setup);
  QpAttr attributes;
  connect(
      attributes, QpState::rts, [&](const QpAttr& a, std::uint32_t mask) { return qp.modify({}, a, mask); },
      QpType::ud);
  const DatagramTarget target = target_of(peer_qpn, 1);
  Sge sge{local_base, 1025, local_key};
  SendWr wr;
  wr.target = &target;
  wr.sges = std::span(&sge, 1);
  EXPECT_EQ(qp.post_send({}, wr), PostResult::too_long);
  sge.length = 1024;
  EXPECT_EQ(qp.post_send({}, wr), PostResult::ok);
}

TEST(UnreliableSender, InlineDataIsCopiedWhenPosted) {
  for (const QpType type : both_types) {
    UnreliableSolo solo(type);
    std::array<std::byte, 10> bytes{std::byte{1}, std::byte{2}};
    const auto before = std::vector(bytes.begin(), bytes.end());
    const Sge sge{reinterpret_cast<std::uintptr_t>(bytes.data()), 10, Key{}};
    SendWr wr = solo.request_of(WrOpcode::send);
    wr.inline_data = true;
    wr.sges = std::span(&sge, 1);
    ASSERT_EQ(solo.qp.post_send(solo.now, wr), PostResult::ok);
    bytes.fill(std::byte{0xFF});
    const auto sent = solo.transmit();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(solo.payload_of(sent[0]), before);
  }
}

TEST(UnreliableSender, ASendIsCompleteWhenItsLastPacketIsHandedOver) {
  UnreliableSolo solo(QpType::uc);
  solo.post(WrOpcode::send, 3000, 1);
  solo.post(WrOpcode::write, 10, 2);
  EXPECT_EQ(solo.transmit(2).size(), 2u);
  EXPECT_FALSE(solo.qp.has_completions());
  EXPECT_EQ(solo.transmit(2).size(), 2u);
  EXPECT_TRUE(solo.qp.has_completions());
  const auto completions = solo.completions();
  EXPECT_EQ(statuses(completions), (Statuses{{1, WcStatus::success}, {2, WcStatus::success}}));
  EXPECT_EQ(completions[0].opcode, WcOpcode::send);
  EXPECT_EQ(completions[1].opcode, WcOpcode::write);
  EXPECT_FALSE(solo.qp.has_completions());
}

TEST(UnreliableSender, UnsignalledRequestsMakeRoomWithoutACompletion) {
  for (const QpType type : both_types) {
    UnreliableSolo solo(type);
    SendWr wr = solo.request_of(WrOpcode::send);
    wr.signaled = false;
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(solo.qp.post_send(solo.now, wr), PostResult::ok) << i;
      ASSERT_EQ(solo.transmit().size(), 1u);
      ASSERT_FALSE(solo.qp.has_completions());
    }
  }
}

TEST(UnreliableSender, RefusedPacketsGoOutAgain) {
  for (std::size_t accepted = 0; accepted <= 5; ++accepted) {
    UnreliableSolo solo(QpType::uc);
    solo.post(WrOpcode::send, 3000, 1);
    solo.post(WrOpcode::send, 1500, 2);
    const auto first = solo.transmit();
    ASSERT_EQ(first.size(), 5u);
    solo.qp.transmit_refused(solo.now, std::span(first).subspan(accepted));
    EXPECT_EQ(solo.qp.wants_transmit(solo.now), accepted != 5);
    EXPECT_EQ(solo.qp.has_completions(), accepted >= 3);
    EXPECT_EQ(solo.completions().size(), accepted == 5 ? 2u : accepted >= 3 ? 1u : 0u);
    const auto again = solo.transmit();
    EXPECT_EQ(outline(again), outline({first.begin() + static_cast<std::ptrdiff_t>(accepted), first.end()}));
    for (std::size_t i = 0; i < again.size(); ++i)
      EXPECT_EQ(solo.payload_of(again[i]), solo.payload_of(first[accepted + i]));
    EXPECT_EQ(solo.completions().size(), accepted == 5 ? 0u : accepted >= 3 ? 1u : 2u);
    EXPECT_EQ(solo.qp.counters().packets_sent, 5u);
    EXPECT_EQ(solo.qp.counters().bytes_sent, 4500u);
  }
}

TEST(UnreliableSender, AFaultFailsItsRequestAndStopsOnlyTheSendQueue) {
  for (const QpType type : both_types) {
    UnreliableSolo solo(type);
    ASSERT_EQ(solo.receive(100, 50), PostResult::ok);
    for (std::uint64_t id = 1; id <= 4; ++id) solo.post(WrOpcode::send, 100, id);
    const auto sent = solo.transmit();
    ASSERT_EQ(sent.size(), 4u);
    solo.qp.transmit_fault(solo.now, sent[1]);
    EXPECT_EQ(solo.qp.state(), QpState::sqe);
    EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::success},
                                                      {2, WcStatus::local_protection_error},
                                                      {3, WcStatus::flushed},
                                                      {4, WcStatus::flushed}}));
    // Sends flush, receives go on.
    ASSERT_EQ(solo.post(WrOpcode::send, 1, 5), PostResult::ok);
    EXPECT_EQ(statuses(solo.completions()), (Statuses{{5, WcStatus::flushed}}));
    EXPECT_FALSE(solo.qp.wants_transmit(solo.now));
    solo.packet(type == QpType::ud ? ud_send_only : uc_send_only, first_received, 4);
    EXPECT_EQ(statuses(solo.completions()), (Statuses{{50, WcStatus::success}}));
    // And back; the numbers behind the fault are not used again.
    ASSERT_TRUE(solo.go(QpState::rts));
    ASSERT_EQ(solo.post(WrOpcode::send, 1, 6), PostResult::ok);
    EXPECT_EQ(solo.transmit().front().headers.bth.psn, first_sent + 4);
    EXPECT_EQ(statuses(solo.completions()), (Statuses{{6, WcStatus::success}}));
  }
}

TEST(UnreliableSender, AFaultInTheMiddleOfAMessageFailsTheMessage) {
  UnreliableSolo solo(QpType::uc);
  solo.post(WrOpcode::send, 3000, 1);
  solo.post(WrOpcode::send, 3000, 2);
  ASSERT_EQ(solo.transmit(4).size(), 4u);
  const auto sent = solo.transmit(1);
  solo.qp.transmit_fault(solo.now, sent[0]);
  EXPECT_EQ(statuses(solo.completions()),
            (Statuses{{1, WcStatus::success}, {2, WcStatus::local_protection_error}}));
  EXPECT_EQ(solo.qp.state(), QpState::sqe);
}

TEST(UnreliableSender, ABadKeyFailsAfterWhatWasSentBefore) {
  for (const QpType type : both_types) {
    UnreliableSolo solo(type);
    solo.post(WrOpcode::send, 10, 1);
    solo.post(WrOpcode::send, 10, 2, Key{0x999});
    solo.post(WrOpcode::send, 10, 3);
    const auto sent = solo.transmit();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_FALSE(solo.qp.wants_transmit(solo.now));
    solo.qp.transmit_refused(solo.now, sent);  // nothing has happened yet
    EXPECT_FALSE(solo.qp.has_completions());
    EXPECT_EQ(solo.qp.state(), QpState::rts);
    ASSERT_EQ(solo.transmit().size(), 1u);
    EXPECT_TRUE(solo.qp.has_completions());
    EXPECT_EQ(
        statuses(solo.completions()),
        (Statuses{{1, WcStatus::success}, {2, WcStatus::local_protection_error}, {3, WcStatus::flushed}}));
    EXPECT_EQ(solo.qp.state(), QpState::sqe);
  }
}

TEST(UnreliableSender, ErrorFlushesBothQueuesAndResetForgets) {
  for (const QpType type : both_types) {
    UnreliableSolo solo(type);
    solo.receive(100, 50);
    solo.post(WrOpcode::send, 10, 1);
    ASSERT_EQ(solo.transmit(1).size(), 1u);
    solo.post(WrOpcode::send, 10, 2);
    ASSERT_TRUE(solo.go(QpState::err));
    EXPECT_EQ(statuses(solo.completions()),
              (Statuses{{1, WcStatus::success}, {2, WcStatus::flushed}, {50, WcStatus::flushed}}));
    solo.post(WrOpcode::send, 10, 3);
    solo.receive(100, 51);
    EXPECT_EQ(statuses(solo.completions()), (Statuses{{3, WcStatus::flushed}, {51, WcStatus::flushed}}));
    EXPECT_FALSE(solo.qp.wants_transmit(solo.now));
    solo.post(WrOpcode::send, 10, 4);
    ASSERT_TRUE(solo.go(QpState::reset));
    EXPECT_FALSE(solo.qp.has_completions());
    EXPECT_TRUE(solo.completions().empty());
    EXPECT_EQ(solo.post(WrOpcode::send, 10, 5), PostResult::bad_state);
  }
}

TEST(UnreliableSender, StartsAnewAfterReset) {
  for (const QpType type : both_types) {
    UnreliableSolo solo(type);
    solo.post(WrOpcode::send, 3000, 1);
    solo.transmit(1);
    ASSERT_TRUE(solo.go(QpState::reset));
    connect(
        attributes_of(unreliable_options(type), 0), QpState::rts,
        [&](const QpAttr& a, std::uint32_t mask) { return solo.qp.modify(solo.now, a, mask); }, type);
    solo.post(WrOpcode::send, 10, 2);
    const auto sent = solo.transmit();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].headers.bth.psn, first_sent);
    EXPECT_EQ(statuses(solo.completions()), (Statuses{{2, WcStatus::success}}));
  }
}

TEST(UnreliableSender, DrainingFinishesTheMessageThatHasBegun) {
  UnreliableSolo solo(QpType::uc);
  solo.post(WrOpcode::send, 3000, 1);
  solo.post(WrOpcode::send, 3000, 2);
  ASSERT_EQ(solo.transmit(1).size(), 1u);
  QpAttr attributes;
  attributes.state = QpState::sqd;
  attributes.notify_drained = true;
  ASSERT_TRUE(solo.qp.modify(solo.now, attributes, attr::state | attr::notify_drained));
  EXPECT_EQ(solo.qp.take_events(), QpEvent::none);
  EXPECT_EQ(solo.transmit().size(), 2u);
  EXPECT_EQ(solo.qp.take_events(), QpEvent::send_queue_drained);
  EXPECT_EQ(solo.qp.take_events(), QpEvent::none);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::success}}));
  EXPECT_FALSE(solo.qp.wants_transmit(solo.now));
  ASSERT_TRUE(solo.go(QpState::rts));
  EXPECT_EQ(solo.transmit().size(), 3u);
}

TEST(UnreliableSender, WithNothingUnderWayTheQueueIsDrainedAtOnce) {
  for (const QpType type : both_types) {
    UnreliableSolo solo(type);
    QpAttr attributes;
    attributes.state = QpState::sqd;
    attributes.notify_drained = true;
    ASSERT_TRUE(solo.qp.modify(solo.now, attributes, attr::state | attr::notify_drained));
    EXPECT_EQ(solo.qp.take_events(), QpEvent::send_queue_drained);
    ASSERT_EQ(solo.post(WrOpcode::send, 4, 1), PostResult::ok);
    EXPECT_FALSE(solo.qp.wants_transmit(solo.now));
    ASSERT_TRUE(solo.go(QpState::rts));
    EXPECT_EQ(solo.transmit().size(), 1u);
  }
}

TEST(UnreliableSender, StaleReportsOfTheCardChangeNothing) {
  UnreliableSolo solo(QpType::uc);
  solo.post(WrOpcode::send, 10, 1);
  const auto sent = solo.transmit();
  ASSERT_EQ(solo.completions().size(), 1u);
  solo.qp.transmit_fault(solo.now, sent[0]);
  solo.qp.transmit_refused(solo.now, sent);
  EXPECT_EQ(solo.qp.state(), QpState::rts);
  EXPECT_FALSE(solo.qp.wants_transmit(solo.now));
  EXPECT_FALSE(solo.qp.has_completions());
}

TEST(UnreliableSender, TheWindowDoesNotHoldAnythingBack) {
  UnreliableSolo solo(QpType::uc);
  solo.qp.set_window(0);
  solo.post(WrOpcode::send, 100'000, 1);
  EXPECT_EQ(solo.transmit(256).size(), 98u);
}

}  // namespace
}  // namespace beeline::proto::testing
