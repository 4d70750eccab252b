// Receiving requests: order, execution, answers.

#include <gtest/gtest.h>

#include "proto/testing/solo.h"

namespace beeline::proto::testing {
namespace {

using enum wire::Opcode;
using wire::Aeth;
using wire::NakCode;

// The only packet that leaves, which must be an acknowledge of this kind.
void expect_answer(Solo& solo, Psn psn, Aeth aeth) {
  const auto sent = solo.transmit();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].headers.bth.opcode, rc_acknowledge);
  EXPECT_EQ(sent[0].headers.bth.psn, psn);
  EXPECT_EQ(sent[0].headers.bth.destination, qpn_of(1));
  EXPECT_EQ(sent[0].headers.aeth, aeth);
  EXPECT_EQ(sent[0].payload_bytes, 0u);
}

void expect_refused(Solo& solo, Psn psn, NakCode code, std::uint32_t msn = 0) {
  EXPECT_EQ(solo.qp.state(), QpState::err);
  expect_answer(solo, psn, Aeth::nak(code, msn));
  EXPECT_FALSE(solo.qp.wants_transmit(solo.now));
}

TEST(Responder, ExecutesASend) {
  Solo solo;
  solo.receive(3000, 7);
  solo.request(rc_send_first, first_received, 1024);
  EXPECT_TRUE(solo.completions().empty());
  wire::Headers last = Solo::header(rc_send_last_imm, first_received + 1);
  last.immediate = 0x12345678;
  last.bth.solicited = true;
  solo.give(last, solo.payload(100));
  const auto done = solo.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].wr_id, 7u);
  EXPECT_EQ(done[0].status, WcStatus::success);
  EXPECT_EQ(done[0].opcode, WcOpcode::receive);
  EXPECT_TRUE(done[0].is_receive && done[0].has_immediate && done[0].solicited);
  EXPECT_EQ(done[0].immediate, 0x12345678u);
  EXPECT_EQ(done[0].byte_length, 1124u);
  EXPECT_TRUE(solo.holds_pattern(local_key, 0, 1024));
  EXPECT_TRUE(solo.holds_pattern(local_key, 1024, 100));
  EXPECT_FALSE(solo.holds_pattern(local_key, 1024, 101));
}

TEST(Responder, AnswersABatchWithOneAck) {
  Solo solo;
  for (std::uint32_t i = 0; i < 5; ++i) solo.request(rc_write_only, first_received + i, 64, 64);
  expect_answer(solo, first_received + 4, Aeth::ack(5));
  EXPECT_FALSE(solo.qp.wants_transmit(solo.now));
}

TEST(Responder, AnswersOnlyWhenAsked) {
  Solo solo;
  wire::Headers headers = Solo::header(rc_write_first, first_received, false);
  headers.reth.length = 2000;
  solo.give(headers, solo.payload(1024));
  EXPECT_TRUE(solo.transmit().empty());
  solo.request(rc_write_last, first_received + 1, 976);
  expect_answer(solo, first_received + 1, Aeth::ack(1));
}

TEST(Responder, ReportsAGapOnce) {
  Solo solo;
  for (std::uint32_t i = 3; i < 6; ++i) solo.request(rc_write_only, first_received + i, 4, 4);
  expect_answer(solo, first_received, Aeth::nak(NakCode::psn_sequence, 0));
  solo.request(rc_write_only, first_received + 6, 4, 4);
  EXPECT_TRUE(solo.transmit().empty());
  solo.request(rc_write_only, first_received, 4, 4);  // the gap begins to close
  solo.request(rc_write_only, first_received + 2, 4, 4);
  expect_answer(solo, first_received + 1, Aeth::nak(NakCode::psn_sequence, 1));
  EXPECT_EQ(solo.qp.state(), QpState::rts);
  EXPECT_EQ(solo.qp.counters().naks_sent, 2u);
}

TEST(Responder, AGapThatClosesBeforeTheNakLeavesNeedsNone) {
  Solo solo;
  solo.request(rc_write_only, first_received + 1, 4, 4);
  solo.request(rc_write_only, first_received, 4, 4);
  expect_answer(solo, first_received, Aeth::ack(1));
}

TEST(Responder, AcknowledgesARepeatedSendAgainButDoesNotExecuteIt) {
  Solo solo;
  solo.receive(100, 1);
  solo.receive(100, 2);
  solo.request(rc_send_only, first_received, 10);
  expect_answer(solo, first_received, Aeth::ack(1));
  EXPECT_EQ(solo.completions().size(), 1u);
  solo.request(rc_send_only, first_received, 20);
  EXPECT_TRUE(solo.completions().empty());
  EXPECT_FALSE(solo.holds_pattern(local_key, 0, 20));
  expect_answer(solo, first_received, Aeth::ack(1));
  EXPECT_EQ(solo.qp.counters().duplicate_packets, 1u);
}

TEST(Responder, ARepeatedPacketFarBehindIsStillARepetition) {
  Solo solo;
  solo.request(rc_write_only, first_received - 0x700000, 4, 4);
  EXPECT_FALSE(solo.holds_pattern(remote_key, 0, 4));
  expect_answer(solo, first_received - 1, Aeth::ack(0));
}

TEST(Responder, ServesAReadInPackets) {
  Solo solo;
  solo.read_request(first_received, 2500, 100);
  auto sent = solo.transmit(2);
  const auto rest = solo.transmit();
  sent.insert(sent.end(), rest.begin(), rest.end());
  ASSERT_EQ(outline(sent), (Outline{{rc_read_response_first, 5000},
                                    {rc_read_response_middle, 5001},
                                    {rc_read_response_last, 5002}}));
  EXPECT_EQ(sent[0].headers.aeth, Aeth::ack(1));
  EXPECT_EQ(sent[1].headers.aeth, Aeth{});
  EXPECT_EQ(sent[2].headers.aeth, Aeth::ack(1));
  EXPECT_EQ(sent[2].refs[0].address, remote_base + 100 + 2048);
  EXPECT_EQ(sent[2].refs[0].length, 452u);
  EXPECT_EQ(sent[2].refs[0].need, Access::remote_read);
  EXPECT_FALSE(sent[2].must_copy);
  solo.request(rc_write_only, first_received + 3, 4, 4);  // the READ took three PSNs
  expect_answer(solo, first_received + 3, Aeth::ack(2));
}

TEST(Responder, AnswersInTheOrderOfTheRequests) {
  Solo solo;
  solo.request(rc_write_only, first_received, 4, 4);
  solo.read_request(first_received + 1, 8);
  solo.request(rc_write_only, first_received + 2, 4, 4);
  const auto sent = solo.transmit();
  EXPECT_EQ(outline(sent), (Outline{{rc_read_response_only, 5001}, {rc_acknowledge, 5002}}));
  EXPECT_EQ(sent[0].headers.aeth, Aeth::ack(2)) << "the MSN of the READ, not of what came later";
  EXPECT_EQ(sent[1].headers.aeth, Aeth::ack(3));
}

TEST(Responder, TheNakComesAfterTheResponsesBeforeIt) {
  Solo solo;
  solo.read_request(first_received, 2048);
  wire::Headers bad = Solo::header(rc_write_only, first_received + 2);
  bad.reth = {remote_base, Key{0xBAD}, 4};
  solo.give(bad, solo.payload(4));
  EXPECT_EQ(solo.qp.state(), QpState::err);
  const auto sent = solo.transmit();
  EXPECT_EQ(outline(sent),
            (Outline{{rc_read_response_first, 5000}, {rc_read_response_last, 5001}, {rc_acknowledge, 5002}}));
  EXPECT_EQ(sent.back().headers.aeth, Aeth::nak(NakCode::remote_access, 1));
}

TEST(Responder, ExecutesARepeatedReadAgain) {
  Solo solo;
  solo.read_request(first_received, 2048);
  EXPECT_EQ(solo.transmit().size(), 2u);
  solo.read_request(first_received + 1, 1024, 1024);  // the tail was lost
  const auto again = solo.transmit();
  ASSERT_EQ(outline(again), (Outline{{rc_read_response_only, 5001}}));
  EXPECT_TRUE(again[0].must_copy);
  EXPECT_EQ(again[0].refs[0].address, remote_base + 1024);
}

TEST(Responder, ARepeatedReadThatIsStillToBeAnsweredIsAnsweredOnce) {
  Solo solo;
  solo.read_request(first_received, 2048);
  solo.read_request(first_received, 2048);
  EXPECT_EQ(solo.transmit().size(), 2u);
}

TEST(Responder, ARepeatedReadIsCheckedAnew) {
  Solo solo;
  solo.read_request(first_received, 8);
  solo.transmit();
  solo.memory.remove(remote_key);
  solo.read_request(first_received, 8);
  expect_answer(solo, first_received, Aeth::nak(NakCode::remote_access, 1));
  EXPECT_EQ(solo.qp.state(), QpState::rts) << "the repetition may be the network's doing";
}

TEST(Responder, ARepeatedReadBeyondWhatWasAskedIsDropped) {
  Solo solo;
  solo.read_request(first_received, 1024);
  solo.transmit();
  solo.read_request(first_received, 2048);
  solo.read_request(first_received, 0xFFFFFFFF);
  EXPECT_TRUE(solo.transmit().empty());
  EXPECT_EQ(solo.qp.counters().dropped_packets, 2u);
}

TEST(Responder, MoreReadsThanAgreedAreRefused) {
  PairOptions options = solo_options();
  options.attributes.max_dest_rd_atomic = 2;
  Solo solo(options);
  for (std::uint32_t i = 0; i < 3; ++i) solo.read_request(first_received + i, 8);
  const auto sent = solo.transmit();
  EXPECT_EQ(outline(sent),
            (Outline{{rc_read_response_only, 5000}, {rc_read_response_only, 5001}, {rc_acknowledge, 5002}}));
  EXPECT_EQ(sent.back().headers.aeth, Aeth::nak(NakCode::invalid_request, 2));
}

TEST(Responder, RepeatedReadsDoNotUseUpTheResources) {
  PairOptions options = solo_options();
  options.attributes.max_dest_rd_atomic = 1;
  Solo solo(options);
  solo.read_request(first_received, 8);
  solo.transmit();
  solo.read_request(first_received, 8);
  solo.read_request(first_received + 1, 8);
  EXPECT_EQ(outline(solo.transmit()),
            (Outline{{rc_read_response_only, 5000}, {rc_read_response_only, 5001}}));
  EXPECT_EQ(solo.qp.state(), QpState::rts);
}

TEST(Responder, WithoutAReceiveItIsNotReady) {
  Solo solo;
  solo.request(rc_send_only, first_received, 10);
  expect_answer(solo, first_received, Aeth::rnr_nak(12, 0));
  solo.request(rc_send_only, first_received + 1, 10);
  EXPECT_TRUE(solo.transmit().empty()) << "what follows is dropped in silence";
  solo.receive(100, 1);
  solo.request(rc_send_only, first_received, 10);
  expect_answer(solo, first_received, Aeth::ack(1));
  EXPECT_EQ(solo.completions().size(), 1u);
}

TEST(Responder, AWriteWithImmediateTakesAReceiveAtItsEnd) {
  Solo solo;
  solo.request(rc_write_first, first_received, 1024, 2000);
  solo.request(rc_write_last_imm, first_received + 1, 976);
  expect_answer(solo, first_received + 1, Aeth::rnr_nak(12, 0));
  solo.receive(0, 9);
  solo.request(rc_write_last_imm, first_received + 1, 976);
  const auto done = solo.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].opcode, WcOpcode::receive_write_imm);
  EXPECT_EQ(done[0].byte_length, 2000u) << "the bytes written";
  EXPECT_TRUE(solo.holds_pattern(remote_key, 1024, 976));
  expect_answer(solo, first_received + 1, Aeth::ack(1));
}

TEST(Responder, EmptyOperationsNeedNoKey) {
  Solo solo;
  solo.receive(0, 1);
  wire::Headers headers = Solo::header(rc_write_only, first_received);
  headers.reth = {0xDEAD, Key{0xBAD}, 0};
  solo.give(headers);
  headers = Solo::header(rc_read_request, first_received + 1);
  headers.reth = {0xDEAD, Key{0xBAD}, 0};
  solo.give(headers);
  solo.request(rc_send_only, first_received + 2, 0);
  const auto sent = solo.transmit();
  EXPECT_EQ(outline(sent), (Outline{{rc_read_response_only, 5001}, {rc_acknowledge, 5002}}));
  EXPECT_EQ(sent[0].ref_count, 0);
  EXPECT_EQ(solo.qp.state(), QpState::rts);
}

struct Refusal {
  const char* what;
  wire::Opcode opcode;
  std::uint32_t bytes;
  wire::Reth reth;
  NakCode code;
};

TEST(Responder, RefusesWhatTheRulesForbid) {
  const Refusal rows[] = {
      {"middle without first", rc_send_middle, 1024, {}, NakCode::invalid_request},
      {"last without first", rc_write_last, 10, {}, NakCode::invalid_request},
      {"first that is not full",
       rc_write_first,
       1000,
       {remote_base, remote_key, 4096},
       NakCode::invalid_request},
      {"only longer than the MTU", rc_send_only, 1025, {}, NakCode::invalid_request},
      {"first that is all", rc_write_first, 1024, {remote_base, remote_key, 1024}, NakCode::invalid_request},
      {"shorter than announced", rc_write_only, 10, {remote_base, remote_key, 11}, NakCode::invalid_request},
      {"longer than announced", rc_write_only, 10, {remote_base, remote_key, 9}, NakCode::invalid_request},
      {"too long a write",
       rc_write_first,
       1024,
       {remote_base, remote_key, 0x80000001},
       NakCode::invalid_request},
      {"too long a read",
       rc_read_request,
       0,
       {remote_base, remote_key, 0x80000001},
       NakCode::invalid_request},
      {"unknown key", rc_write_only, 4, {remote_base, Key{0xBAD}, 4}, NakCode::remote_access},
      {"other domain", rc_write_only, 4, {remote_base, foreign_key, 4}, NakCode::remote_access},
      {"before the region", rc_write_only, 4, {remote_base - 1, remote_key, 4}, NakCode::remote_access},
      {"behind the region",
       rc_read_request,
       0,
       {remote_base + region_bytes - 3, remote_key, 4},
       NakCode::remote_access},
      {"around the end of addresses",
       rc_write_first,
       1024,
       {~0ull - 100, remote_key, 2048},
       NakCode::remote_access},
      {"region closed to the peer", rc_write_only, 4, {local_base, local_key, 4}, NakCode::remote_access},
      {"region closed to reading", rc_read_request, 0, {local_base, local_key, 4}, NakCode::remote_access},
  };
  for (const Refusal& row : rows) {
    SCOPED_TRACE(row.what);
    Solo solo;
    solo.receive(4096, 1);
    const auto local = solo.memory.find(local_key)->bytes;
    const auto remote = solo.memory.find(remote_key)->bytes;
    wire::Headers headers = Solo::header(row.opcode, first_received);
    headers.reth = row.reth;
    solo.give(headers, solo.payload(row.bytes));
    expect_refused(solo, first_received, row.code);
    EXPECT_EQ(solo.memory.find(local_key)->bytes, local);
    EXPECT_EQ(solo.memory.find(remote_key)->bytes, remote);
    EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::flushed}}));
  }
}

TEST(Responder, AcceptsWhatJustFitsTheRegion) {
  Solo solo;
  wire::Headers write = Solo::header(rc_write_only, first_received);
  write.reth = {remote_base + region_bytes - 4, remote_key, 4};
  solo.give(write, solo.payload(4));
  EXPECT_TRUE(solo.holds_pattern(remote_key, region_bytes - 4, 4));
  solo.read_request(first_received + 1, 4, region_bytes - 4);
  solo.read_request(first_received + 2, region_bytes);
  EXPECT_EQ(solo.qp.state(), QpState::rts);
  EXPECT_EQ(solo.transmit().size(), 1u + region_bytes / 1024);
}

TEST(Responder, RefusesAMessageWithinAMessage) {
  for (const wire::Opcode opcode :
       {rc_write_first, rc_send_only, rc_write_middle, rc_read_request, rc_send_first}) {
    Solo solo;
    solo.receive(4096, 1);
    solo.request(rc_send_first, first_received, 1024);
    const std::uint32_t bytes = opcode == rc_send_only ? 10 : opcode == rc_read_request ? 0 : 1024;
    solo.request(opcode, first_received + 1, bytes, 4096);
    expect_refused(solo, first_received + 1, NakCode::invalid_request);
  }
}

TEST(Responder, RefusesOperationsThatTheQueuePairDoesNotGrant) {
  for (const wire::Opcode opcode : {rc_write_only, rc_read_request}) {
    PairOptions options = solo_options();
    options.attributes.access =
        Access::local_write | (opcode == rc_write_only ? Access::remote_read : Access::remote_write);
    Solo solo(options);
    solo.request(opcode, first_received, opcode == rc_write_only ? 4 : 0, 4);
    expect_refused(solo, first_received, NakCode::invalid_request);
  }
}

TEST(Responder, AMessageLongerThanTheReceiveFailsBothSides) {
  Solo solo;
  solo.receive(1500, 1);
  solo.receive(1500, 2);
  solo.request(rc_send_first, first_received, 1024);
  solo.request(rc_send_last, first_received + 1, 477);
  EXPECT_EQ(statuses(solo.completions()),
            (Statuses{{1, WcStatus::local_length_error}, {2, WcStatus::flushed}}));
  expect_refused(solo, first_received + 1, NakCode::invalid_request);
}

TEST(Responder, AReceiveThatMayNotBeWrittenFailsBothSides) {
  Solo solo;
  solo.receive(100, 1, read_only_key);
  solo.request(rc_send_only, first_received, 10);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::local_protection_error}}));
  expect_refused(solo, first_received, NakCode::remote_operation);
}

TEST(Responder, AFaultInMemoryIsANakNotGarbage) {
  Solo solo;
  solo.memory.find(remote_key)->faulty = true;
  solo.request(rc_write_only, first_received, 4, 4);
  expect_refused(solo, first_received, NakCode::remote_operation);

  Solo reader;
  reader.read_request(first_received, 4096);
  const auto sent = reader.transmit(2);
  reader.qp.transmit_fault(reader.now, sent[1]);
  expect_refused(reader, first_received + 1, NakCode::remote_operation, 1);
}

TEST(Responder, RepeatsTheReasonOfAnError) {
  Solo solo;
  solo.receive(100, 1);
  solo.request(rc_send_middle, first_received, 1024);
  expect_refused(solo, first_received, NakCode::invalid_request);
  solo.request(rc_send_only, first_received + 1, 4);
  EXPECT_TRUE(solo.transmit().empty());
  solo.request(rc_send_only, first_received, 4);  // the peer did not get it
  expect_refused(solo, first_received, NakCode::invalid_request);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::flushed}}));
  EXPECT_FALSE(solo.holds_pattern(local_key, 0, 4));
}

TEST(Responder, ExecutesNothingAfterAnError) {
  Solo solo;
  QpAttr error;
  error.state = QpState::err;
  ASSERT_TRUE(solo.qp.modify(solo.now, error, attr::state));
  solo.receive(100, 1);
  solo.request(rc_write_only, first_received, 4, 4);
  solo.request(rc_send_only, first_received, 4);
  solo.read_request(first_received, 4);
  EXPECT_FALSE(solo.holds_pattern(remote_key, 0, 4));
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::flushed}}));
  EXPECT_TRUE(solo.transmit().empty());
  EXPECT_EQ(solo.qp.counters().dropped_packets, 3u);
}

TEST(Responder, AnswersAndRequestsShareTheBatch) {
  Solo solo;
  solo.read_request(first_received, 64 * 1024);
  solo.post(WrOpcode::write, 64 * 1024, 1);
  for (int i = 0; i < 4; ++i) {
    int answers = 0;
    const auto sent = solo.transmit(8);
    for (const TxDesc& desc : sent)
      answers += wire::info(desc.headers.bth.opcode).kind == wire::Kind::read_response;
    EXPECT_EQ(answers, 4);
    EXPECT_EQ(sent.size(), 8u);
  }
  int answers = 0;
  for (int i = 0; i < 8; ++i)
    answers += wire::info(solo.transmit(1).at(0).headers.bth.opcode).kind == wire::Kind::read_response;
  EXPECT_EQ(answers, 4) << "one at a time they alternate";
}

TEST(Responder, WhatTheSocketRefusedIsAnsweredLater) {
  for (std::size_t kept = 0; kept < 3; ++kept) {
    Solo solo;
    solo.read_request(first_received, 2048);
    solo.request(rc_write_only, first_received + 2, 4, 4);
    const auto sent = solo.transmit();
    ASSERT_EQ(sent.size(), 3u);
    solo.qp.transmit_refused(solo.now, std::span(sent).subspan(kept));
    const auto again = solo.transmit();
    ASSERT_EQ(again.size(), 3 - kept);
    for (std::size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again[i].headers, sent[kept + i].headers);
    EXPECT_EQ(solo.qp.counters().packets_sent, 3u);
  }

  Solo refusing;
  refusing.request(rc_send_middle, first_received, 1024);
  const auto nak = refusing.transmit();
  refusing.qp.transmit_refused(refusing.now, nak);
  expect_refused(refusing, first_received, NakCode::invalid_request);
  EXPECT_EQ(refusing.qp.counters().naks_sent, 1u);
}

TEST(Responder, TheMessageNumberWrapsWithTheMessages) {
  Solo solo;
  for (std::uint32_t i = 0; i < 3; ++i) {
    solo.request(rc_write_only, first_received + i, 0, 0);
    expect_answer(solo, first_received + i, Aeth::ack(i + 1));
  }
}

}  // namespace
}  // namespace beeline::proto::testing
