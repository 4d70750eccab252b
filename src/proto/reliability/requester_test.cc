// Sending: segmentation, PSNs, windows, acknowledgements. Recovery is in recovery_test.cc.

#include <gtest/gtest.h>

#include "proto/testing/solo.h"

namespace beeline::proto::testing {
namespace {

using enum wire::Opcode;

TEST(Requester, CutsAWriteByThePathMtu) {
  Solo solo;
  ASSERT_EQ(solo.post(WrOpcode::write_imm, 2 * 1024 + 5), PostResult::ok);
  const auto sent = solo.transmit();
  ASSERT_EQ(outline(sent),
            (Outline{{rc_write_first, 1000}, {rc_write_middle, 1001}, {rc_write_last_imm, 1002}}));
  EXPECT_EQ(sent[0].headers.reth, (wire::Reth{remote_base, Key{0x77}, 2 * 1024 + 5}));
  EXPECT_EQ(sent[1].headers.reth, wire::Reth{});
  EXPECT_EQ(sent[2].headers.immediate, 0xABCDu);
  EXPECT_EQ(sent[2].headers.bth.pad_count, 3);
  EXPECT_EQ(sent[0].headers.bth.destination, qpn_of(1));
  EXPECT_FALSE(sent[0].headers.bth.ack_request);
  EXPECT_FALSE(sent[1].headers.bth.ack_request);
  EXPECT_TRUE(sent[2].headers.bth.ack_request);
  std::vector<std::byte> all;
  for (const TxDesc& desc : sent) {
    const auto bytes = solo.payload_of(desc);
    all.insert(all.end(), bytes.begin(), bytes.end());
    EXPECT_FALSE(desc.must_copy);
  }
  const auto& region = solo.memory.find(local_key)->bytes;
  EXPECT_TRUE(std::equal(all.begin(), all.end(), region.begin()));
  EXPECT_EQ(all.size(), 2u * 1024 + 5);
}

TEST(Requester, ChoosesTheOpcodeByOperationAndLength) {
  struct Row {
    WrOpcode opcode;
    std::uint32_t length;
    std::vector<wire::Opcode> packets;
  };
  const Row rows[] = {
      {WrOpcode::send, 0, {rc_send_only}},
      {WrOpcode::send, 1024, {rc_send_only}},
      {WrOpcode::send, 1025, {rc_send_first, rc_send_last}},
      {WrOpcode::send_imm, 1, {rc_send_only_imm}},
      {WrOpcode::send_imm, 3 * 1024, {rc_send_first, rc_send_middle, rc_send_last_imm}},
      {WrOpcode::write, 0, {rc_write_only}},
      {WrOpcode::write, 2048, {rc_write_first, rc_write_last}},
      {WrOpcode::write_imm, 7, {rc_write_only_imm}},
      {WrOpcode::read, 0, {rc_read_request}},
      {WrOpcode::read, 5000, {rc_read_request}},
  };
  for (const Row& row : rows) {
    Solo solo;
    ASSERT_EQ(solo.post(row.opcode, row.length), PostResult::ok);
    const auto sent = solo.transmit();
    ASSERT_EQ(sent.size(), row.packets.size());
    for (std::size_t i = 0; i < sent.size(); ++i) EXPECT_EQ(sent[i].headers.bth.opcode, row.packets[i]);
  }
}

TEST(Requester, AllotsAReadAsManyPsnsAsItsResponseHasPackets) {
  Solo solo;
  solo.post(WrOpcode::read, 2049);
  solo.post(WrOpcode::read, 0);
  solo.post(WrOpcode::send, 1);
  EXPECT_EQ(outline(solo.transmit()),
            (Outline{{rc_read_request, 1000}, {rc_read_request, 1003}, {rc_send_only, 1004}}));
}

TEST(Requester, WrapsThePsn) {
  PairOptions options = solo_options();
  options.first_psn[0] = Psn{0xFFFFFF};
  Solo solo(options);
  solo.post(WrOpcode::send, 2048, 1);
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_send_first, 0xFFFFFF}, {rc_send_last, 0}}));
  solo.ack(Psn{0});
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::success}}));
}

TEST(Requester, OneAckCompletesEverythingUpToItsPsn) {
  Solo solo;
  for (std::uint64_t id = 1; id <= 4; ++id) solo.post(WrOpcode::send, 100, id);
  EXPECT_EQ(solo.transmit().size(), 4u);
  solo.ack(first_sent + 2);
  EXPECT_EQ(statuses(solo.completions()),
            (Statuses{{1, WcStatus::success}, {2, WcStatus::success}, {3, WcStatus::success}}));
  solo.ack(first_sent + 3);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{4, WcStatus::success}}));
  EXPECT_EQ(solo.qp.next_timeout(), TimePoint::never());
}

TEST(Requester, IgnoresAcksOfWhatIsNotInFlight) {
  Solo solo;
  solo.post(WrOpcode::send, 100, 1);
  solo.ack(first_sent);  // not sent yet
  EXPECT_TRUE(solo.completions().empty());
  solo.transmit();
  for (const std::uint32_t psn : {999u, 1001u, 1000u + 0x800000u, 0u}) solo.ack(Psn{psn & Psn::mask});
  EXPECT_TRUE(solo.completions().empty());
  EXPECT_EQ(solo.qp.counters().dropped_packets, 5u);
  solo.ack(first_sent);
  solo.ack(first_sent);  // the wire repeated it
  EXPECT_EQ(solo.completions().size(), 1u);
}

TEST(Requester, AnUnsignalledRequestCompletesSilently) {
  Solo solo;
  const Sge sge{local_base, 4, local_key};
  SendWr wr;
  wr.sges = std::span(&sge, 1);
  ASSERT_EQ(solo.qp.post_send(solo.now, wr), PostResult::ok);
  solo.post(WrOpcode::send, 4, 2);
  solo.transmit();
  solo.ack(first_sent + 1);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{2, WcStatus::success}}));
}

TEST(Requester, KeepsWithinTheWindow) {
  PairOptions options = solo_options();
  options.window_bytes = 4 * 1024;
  Solo solo(options);
  solo.post(WrOpcode::send, 10 * 1024, 1);
  EXPECT_EQ(solo.transmit().size(), 4u);
  EXPECT_FALSE(solo.qp.wants_transmit(solo.now));
  solo.ack(first_sent + 1);
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_send_middle, 1004}, {rc_send_middle, 1005}}));
}

TEST(Requester, SmallPacketsCountMoreThanTheirBytes) {
  PairOptions options = solo_options();
  options.window_bytes = 4 * 1024;
  Solo solo(options);
  for (std::uint64_t id = 1; id <= 16; ++id) solo.post(WrOpcode::send, 1, id);
  EXPECT_EQ(solo.transmit().size(), 8u);
}

TEST(Requester, AsksForAnAckBeforeTheWindowCloses) {
  for (const std::uint32_t window : {1u, 2'000u, 5'000u, 20'000u, 100'000u}) {
    PairOptions options = solo_options();
    options.window_bytes = window;
    Solo solo(options);
    solo.post(WrOpcode::send, region_bytes, 1);
    for (int rounds = 0; rounds < 1000 && solo.completions().empty(); ++rounds) {
      const auto sent = solo.transmit();
      ASSERT_FALSE(sent.empty());
      ASSERT_TRUE(sent.back().headers.bth.ack_request) << "window " << window;
      solo.ack(sent.back().headers.bth.psn);
    }
    EXPECT_FALSE(solo.qp.wants_transmit(solo.now));
    EXPECT_EQ(solo.qp.counters().retransmitted_packets, 0u);
  }
}

TEST(Requester, AWindowThatChangesUnderwayIsObeyed) {
  Solo solo;
  solo.qp.set_window(1);
  solo.post(WrOpcode::send, 10 * 1024, 1);
  EXPECT_EQ(solo.transmit().size(), 1u) << "one packet is always allowed";
  solo.qp.set_window(1 << 20);
  EXPECT_EQ(solo.transmit().size(), 9u);
}

TEST(Requester, RequestsALargeReadInPiecesThatFitTheWindow) {
  PairOptions options = solo_options();
  options.window_bytes = 8 * 1024;
  Solo solo(options);
  solo.post(WrOpcode::read, 10 * 1024 + 1, 1);
  const auto sent = solo.transmit();
  ASSERT_EQ(outline(sent), (Outline{{rc_read_request, 1000}, {rc_read_request, 1004}}));
  EXPECT_EQ(sent[1].headers.reth, (wire::Reth{remote_base + 4096, Key{0x77}, 4096}));
  for (std::uint32_t i = 0; i < 4; ++i)
    solo.respond(i == 0   ? rc_read_response_first
                 : i == 3 ? rc_read_response_last
                          : rc_read_response_middle,
                 first_sent + i, 1024);
  const auto more = solo.transmit();
  ASSERT_EQ(outline(more), (Outline{{rc_read_request, 1008}}));
  EXPECT_EQ(more[0].headers.reth, (wire::Reth{remote_base + 8192, Key{0x77}, 2049}));
}

TEST(Requester, LimitsOutstandingReads) {
  PairOptions options = solo_options();
  options.attributes.max_rd_atomic = 2;
  Solo solo(options);
  for (std::uint64_t id = 1; id <= 3; ++id) solo.post(WrOpcode::read, 10, id);
  EXPECT_EQ(solo.transmit().size(), 2u);
  solo.respond(rc_read_response_only, first_sent, 10);
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_read_request, 1002}}));
}

TEST(Requester, WithoutReadResourcesAReadFailsAtOnce) {
  PairOptions options = solo_options();
  options.attributes.max_rd_atomic = 0;
  Solo solo(options);
  solo.post(WrOpcode::read, 10, 1);
  EXPECT_TRUE(solo.transmit().empty());
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::local_qp_operation_error}}));
}

TEST(Requester, AFenceWaitsForEarlierReadsOnly) {
  Solo solo;
  solo.post(WrOpcode::read, 10, 1);
  solo.post(WrOpcode::write, 10, 2);
  solo.post(WrOpcode::write, 10, 3, local_key, true);
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_read_request, 1000}, {rc_write_only, 1001}}));
  solo.respond(rc_read_response_only, first_sent, 10);
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_write_only, 1002}}));
}

TEST(Requester, WritesReadResponsesToTheirPieces) {
  Solo solo;
  const Sge sges[] = {{local_base + 10, 700, local_key},
                      {local_base + 2000, 0, local_key},
                      {local_base + 3000, 1000, local_key}};
  SendWr wr;
  wr.opcode = WrOpcode::read;
  wr.signaled = true;
  wr.sges = sges;
  ASSERT_EQ(solo.qp.post_send(solo.now, wr), PostResult::ok);
  solo.transmit();
  const auto before = solo.memory.find(local_key)->bytes;
  solo.respond(rc_read_response_first, first_sent, 1024);
  solo.respond(rc_read_response_last, first_sent + 1, 676);
  const auto& after = solo.memory.find(local_key)->bytes;
  const Bytes pattern = solo.payload(1024);
  EXPECT_TRUE(std::equal(pattern.begin(), pattern.begin() + 700, after.begin() + 10));
  EXPECT_TRUE(std::equal(pattern.begin() + 700, pattern.end(), after.begin() + 3000));
  EXPECT_TRUE(std::equal(pattern.begin(), pattern.begin() + 676, after.begin() + 3324));
  EXPECT_EQ(after[4000], before[4000]);
  const auto done = solo.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].opcode, WcOpcode::read);
  EXPECT_EQ(done[0].byte_length, 1700u);
}

// What answers a PSN that is awaited, but not as it must, ends the request: nothing of it is stored.
TEST(Requester, AnAnswerThatCannotBeRightIsABadResponse) {
  const auto refused = [](auto give) {
    Solo solo;
    solo.post(WrOpcode::read, 2048, 1);
    solo.post(WrOpcode::send, 4, 2);
    solo.post(WrOpcode::fetch_add, 8, 3);
    solo.transmit();
    const auto before = solo.memory.find(local_key)->bytes;
    give(solo);
    EXPECT_EQ(solo.memory.find(local_key)->bytes, before);
    EXPECT_EQ(solo.qp.state(), QpState::err);
    return statuses(solo.completions());
  };
  const auto first = [&](auto give) {
    EXPECT_EQ(refused(give),
              (Statuses{{1, WcStatus::bad_response}, {2, WcStatus::flushed}, {3, WcStatus::flushed}}));
  };
  first([](Solo& solo) { solo.respond(rc_read_response_first, first_sent, 1023); });
  first([](Solo& solo) { solo.respond(rc_read_response_first, first_sent, 1028); });
  first([](Solo& solo) { solo.respond(rc_read_response_only, first_sent, 0); });
  first([](Solo& solo) { solo.atomic_answer(first_sent, 1); });
  first([](Solo& solo) {
    wire::Headers strange = Solo::header(rc_read_response_first, first_sent);
    strange.aeth = wire::Aeth::nak(wire::NakCode::remote_access, 0);
    solo.give(strange, solo.payload(1024));
  });
}

TEST(Requester, TheLastReadResponseMustSaySo) {
  Solo solo;
  solo.post(WrOpcode::read, 2048, 1);
  solo.transmit();
  solo.respond(rc_read_response_first, first_sent, 1024);
  solo.respond(rc_read_response_middle, first_sent + 1, 1024);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::bad_response}}));
}

TEST(Requester, DataInAnswerToASendIsABadResponse) {
  for (const bool atomic : {false, true}) {
    Solo solo;
    solo.post(WrOpcode::send, 4, 1);
    solo.transmit();
    if (atomic) {
      solo.atomic_answer(first_sent, 1);
    } else {
      solo.respond(rc_read_response_only, first_sent, 4);
    }
    EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::bad_response}}));
  }
}

TEST(Requester, DropsReadResponsesThatNobodyAskedFor) {
  Solo solo;
  solo.post(WrOpcode::read, 1024, 1);
  solo.transmit();
  solo.respond(rc_read_response_only, first_sent + 7, 1024);
  solo.respond(rc_read_response_only, first_sent - 1, 1024);
  EXPECT_EQ(solo.qp.counters().dropped_packets, 2u);
  solo.respond(rc_read_response_only, first_sent, 1024);
  solo.respond(rc_read_response_only, first_sent, 1024);
  EXPECT_EQ(solo.qp.counters().dropped_packets, 3u);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::success}}));
}

TEST(Requester, SolicitedIsSaidInTheLastPacketOnly) {
  Solo solo;
  const Sge sge{local_base, 2000, local_key};
  SendWr wr;
  wr.solicited = true;
  wr.sges = std::span(&sge, 1);
  solo.qp.post_send(solo.now, wr);
  const auto sent = solo.transmit();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_FALSE(sent[0].headers.bth.solicited);
  EXPECT_TRUE(sent[1].headers.bth.solicited);
}

TEST(Requester, InlineBytesAreThoseOfThePost) {
  Solo solo;
  std::array<std::byte, 8> bytes;
  bytes.fill(std::byte{0x5A});
  const Sge sge{reinterpret_cast<std::uintptr_t>(bytes.data()), 8, Key{0xBAD}};
  SendWr wr;
  wr.inline_data = true;
  wr.sges = std::span(&sge, 1);
  ASSERT_EQ(solo.qp.post_send(solo.now, wr), PostResult::ok);
  bytes.fill(std::byte{0});
  const auto sent = solo.transmit();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].ref_count, 0);
  EXPECT_EQ(solo.payload_of(sent[0]), std::vector<std::byte>(8, std::byte{0x5A}));
}

TEST(Requester, GathersManyPiecesWithinTheDescriptor) {
  PairOptions options = solo_options();
  options.limits.send_sges = max_sge;
  Solo solo(options);
  std::array<Sge, max_sge> sges;
  for (std::size_t i = 0; i < sges.size(); ++i) sges[i] = {local_base + 100 * i, 100, local_key};
  SendWr wr;
  wr.sges = sges;
  ASSERT_EQ(solo.qp.post_send(solo.now, wr), PostResult::ok);
  const auto sent = solo.transmit();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].ref_count, 11);
  EXPECT_EQ(sent[1].ref_count, 6);
  EXPECT_EQ(sent[1].refs[0].address, local_base + 1024);
}

}  // namespace
}  // namespace beeline::proto::testing
