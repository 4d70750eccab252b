// Atomics on the wire: executed once, answered as often as asked.

#include <gtest/gtest.h>

#include "proto/testing/solo.h"

namespace beeline::proto::testing {
namespace {

using enum wire::Opcode;
using wire::NakCode;

TEST(AtomicRequester, SendsTheOperandsAndStoresTheAnswer) {
  Solo solo;
  solo.post(WrOpcode::compare_swap, 8, 1);
  solo.post(WrOpcode::fetch_add, 8, 2);
  const auto sent = solo.transmit();
  EXPECT_EQ(outline(sent), (Outline{{rc_compare_swap, 1000}, {rc_fetch_add, 1001}}));
  for (const TxDesc& desc : sent) {
    const std::uint64_t compare = desc.headers.bth.opcode == rc_compare_swap ? 5 : 0;
    EXPECT_EQ(desc.headers.atomic, (wire::AtomicEth{remote_base, Key{0x77}, 7, compare}));
    EXPECT_EQ(desc.payload_bytes, 0u);
    EXPECT_EQ(desc.ref_count, 0);
  }
  solo.atomic_answer(first_sent, 0x0102030405060708);
  EXPECT_EQ(solo.number_at(local_key, 0), 0x0102030405060708u);
  solo.atomic_answer(first_sent + 1, 9);
  EXPECT_EQ(solo.number_at(local_key, 0), 9u);
  const auto done = solo.completions();
  EXPECT_EQ(statuses(done), (Statuses{{1, WcStatus::success}, {2, WcStatus::success}}));
  EXPECT_EQ(done[0].opcode, WcOpcode::compare_swap);
  EXPECT_EQ(done[1].opcode, WcOpcode::fetch_add);
  EXPECT_EQ(done[0].byte_length, 8u);
}

TEST(AtomicRequester, NoAckStepsOverAnAtomic) {
  Solo solo;
  solo.post(WrOpcode::fetch_add, 8, 1);
  solo.post(WrOpcode::send, 4, 2);
  solo.transmit();
  solo.ack(first_sent + 1);
  EXPECT_TRUE(solo.completions().empty());
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_fetch_add, 1000}, {rc_send_only, 1001}})) << "asks again";
  solo.atomic_answer(first_sent, 3);
  solo.ack(first_sent + 1);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::success}, {2, WcStatus::success}}));
}

TEST(AtomicRequester, AnAnswerAcknowledgesWhatCameBefore) {
  Solo solo;
  solo.post(WrOpcode::send, 4, 1);
  solo.post(WrOpcode::fetch_add, 8, 2);
  solo.transmit();
  solo.atomic_answer(first_sent + 1, 3);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::success}, {2, WcStatus::success}}));
}

TEST(AtomicRequester, CountsAgainstTheReadsThatMayBeOutstanding) {
  PairOptions options = solo_options();
  options.attributes.max_rd_atomic = 2;
  Solo solo(options);
  solo.post(WrOpcode::read, 4, 1);
  solo.post(WrOpcode::fetch_add, 8, 2);
  solo.post(WrOpcode::compare_swap, 8, 3);
  EXPECT_EQ(solo.transmit().size(), 2u);
  solo.respond(rc_read_response_only, first_sent, 4);
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_compare_swap, 1002}}));
}

TEST(AtomicRequester, AFenceWaitsForIt) {
  Solo solo;
  solo.post(WrOpcode::fetch_add, 8, 1);
  solo.post(WrOpcode::write, 4, 2, local_key, true);
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_fetch_add, 1000}}));
  solo.atomic_answer(first_sent, 3);
  EXPECT_EQ(outline(solo.transmit()), (Outline{{rc_write_only, 1001}}));
}

TEST(AtomicRequester, PostingIsChecked) {
  Solo solo;
  for (const WrOpcode opcode : {WrOpcode::fetch_add, WrOpcode::compare_swap}) {
    for (const std::uint32_t length : {0u, 4u, 7u, 9u, 16u})
      EXPECT_EQ(solo.post(opcode, length), PostResult::invalid) << length;
    SendWr wr;
    std::uint64_t number = 0;
    const Sge sge{reinterpret_cast<std::uintptr_t>(&number), 8, {}};
    wr.opcode = opcode;
    wr.inline_data = true;
    wr.sges = std::span(&sge, 1);
    EXPECT_EQ(solo.qp.post_send(solo.now, wr), PostResult::inline_too_long);
  }
  EXPECT_EQ(solo.post(WrOpcode::fetch_add, 8, 0, read_only_key), PostResult::ok);
  EXPECT_TRUE(solo.transmit().empty());
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{0, WcStatus::local_protection_error}}));
}

TEST(AtomicRequester, TheAnswerMayComeInPieces) {
  Solo solo;
  const Sge pieces[] = {{local_base + 100, 3, local_key}, {local_base + 200, 5, local_key}};
  SendWr wr;
  wr.opcode = WrOpcode::fetch_add;
  wr.signaled = true;
  wr.sges = pieces;
  ASSERT_EQ(solo.qp.post_send(solo.now, wr), PostResult::ok);
  solo.transmit();
  const std::uint64_t before = 0x1122334455667788;
  solo.atomic_answer(first_sent, before);
  std::array<std::byte, 8> want;
  std::memcpy(want.data(), &before, 8);
  const auto& bytes = solo.memory.find(local_key)->bytes;
  EXPECT_TRUE(std::equal(want.begin(), want.begin() + 3, bytes.begin() + 100));
  EXPECT_TRUE(std::equal(want.begin() + 3, want.end(), bytes.begin() + 200));
}

TEST(AtomicResponder, ExecutesAndAnswers) {
  Solo solo;
  solo.set_number(remote_key, 64, 40);
  solo.atomic_request(rc_fetch_add, first_received, 2, 0, 64);
  solo.atomic_request(rc_compare_swap, first_received + 1, 7, 41, 64);  // does not match
  solo.atomic_request(rc_compare_swap, first_received + 2, 8, 42, 64);
  const auto sent = solo.transmit();
  ASSERT_EQ(
      outline(sent),
      (Outline{{rc_atomic_acknowledge, 5000}, {rc_atomic_acknowledge, 5001}, {rc_atomic_acknowledge, 5002}}));
  EXPECT_EQ(sent[0].headers.atomic_before, 40u);
  EXPECT_EQ(sent[1].headers.atomic_before, 42u);
  EXPECT_EQ(sent[2].headers.atomic_before, 42u);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(sent[i].headers.aeth, wire::Aeth::ack(i + 1));
  EXPECT_EQ(solo.number_at(remote_key, 64), 8u);
  EXPECT_TRUE(solo.completions().empty()) << "the receiver's program hears nothing";
}

TEST(AtomicResponder, ADuplicateGetsTheSameAnswerAndIsNotExecuted) {
  Solo solo;
  solo.set_number(remote_key, 0, 10);
  solo.atomic_request(rc_fetch_add, first_received, 1);
  solo.atomic_request(rc_fetch_add, first_received + 1, 1);
  solo.transmit();
  for (int again = 0; again < 3; ++again) {
    solo.atomic_request(rc_fetch_add, first_received, 1);
    solo.atomic_request(rc_fetch_add, first_received + 1, 1);
    const auto sent = solo.transmit();
    ASSERT_EQ(outline(sent), (Outline{{rc_atomic_acknowledge, 5000}, {rc_atomic_acknowledge, 5001}}));
    EXPECT_EQ(sent[0].headers.atomic_before, 10u);
    EXPECT_EQ(sent[1].headers.atomic_before, 11u);
  }
  EXPECT_EQ(solo.number_at(remote_key, 0), 12u);
  EXPECT_EQ(solo.qp.counters().duplicate_packets, 6u);
}

// A gap, and everything again: what was executed is not executed anew.
TEST(AtomicResponder, ADuplicateIsAnsweredAfterTheRegionIsGone) {
  Solo solo;
  solo.set_number(remote_key, 0, 10);
  solo.atomic_request(rc_fetch_add, first_received, 1);
  solo.transmit();
  solo.memory.remove(remote_key);
  solo.atomic_request(rc_fetch_add, first_received, 1);
  const auto sent = solo.transmit();
  ASSERT_EQ(outline(sent), (Outline{{rc_atomic_acknowledge, 5000}}));
  EXPECT_EQ(sent[0].headers.atomic_before, 10u);
}

TEST(AtomicResponder, ForgetsWhatNobodyMayStillAskFor) {
  PairOptions options = solo_options();
  options.attributes.max_dest_rd_atomic = 2;
  Solo solo(options);
  for (std::uint32_t i = 0; i < 3; ++i) {
    solo.atomic_request(rc_fetch_add, first_received + i, 1);
    solo.transmit();
  }
  solo.atomic_request(rc_fetch_add, first_received, 1);
  EXPECT_TRUE(solo.transmit().empty());
  EXPECT_EQ(solo.qp.counters().dropped_packets, 1u);
  solo.atomic_request(rc_fetch_add, first_received + 1, 1);
  EXPECT_EQ(solo.transmit().size(), 1u);
}

TEST(AtomicResponder, RefusesMoreThanItServes) {
  PairOptions options = solo_options();
  options.attributes.max_dest_rd_atomic = 2;
  Solo solo(options);
  const std::uint64_t before = solo.number_at(remote_key, 0);
  for (std::uint32_t i = 0; i < 3; ++i) solo.atomic_request(rc_fetch_add, first_received + i, 1);
  EXPECT_EQ(solo.qp.state(), QpState::err);
  EXPECT_EQ(solo.number_at(remote_key, 0), before + 2) << "refused before it was executed";
  EXPECT_TRUE(contains(solo.qp.take_events(), QpEvent::invalid_request));
}

TEST(AtomicResponder, RefusesWhatIsNotAllowed) {
  struct Row {
    const char* what;
    std::uint64_t offset;
    Key key;
    Access granted;
    NakCode code;
    QpEvent event;
  };
  constexpr Access all =
      Access::local_write | Access::remote_write | Access::remote_read | Access::remote_atomic;
  constexpr Access no_atomics = Access::local_write | Access::remote_write | Access::remote_read;
  const Row rows[] = {
      {"misaligned", 4, remote_key, all, NakCode::invalid_request, QpEvent::invalid_request},
      {"not granted", 0, remote_key, no_atomics, NakCode::invalid_request, QpEvent::invalid_request},
      {"wrong key", 0, Key{0xBAD}, all, NakCode::remote_access, QpEvent::access_violation},
      {"no right", 0, local_key, all, NakCode::remote_access, QpEvent::access_violation},
      {"foreign", 0, foreign_key, all, NakCode::remote_access, QpEvent::access_violation},
      {"beyond", region_bytes, remote_key, all, NakCode::remote_access, QpEvent::access_violation},
      {"another's window", 0, spare_key, all, NakCode::remote_access, QpEvent::access_violation},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    PairOptions options = solo_options();
    options.attributes.access = row.granted;
    Solo solo(options);
    solo.memory.find(spare_key)->user = Qpn{0x999};
    const auto before = solo.memory.find(remote_key)->bytes;
    solo.atomic_request(rc_fetch_add, first_received, 1, 0, row.offset, row.key);
    const auto sent = solo.transmit();
    ASSERT_EQ(outline(sent), (Outline{{rc_acknowledge, 5000}}));
    EXPECT_EQ(sent[0].headers.aeth, wire::Aeth::nak(row.code, 0));
    EXPECT_EQ(solo.memory.find(remote_key)->bytes, before);
    EXPECT_EQ(solo.qp.state(), QpState::err);
    EXPECT_EQ(solo.qp.take_events(), row.event);
  }
}

TEST(AtomicResponder, TakesBackAnAnswerThatTheSocketRefused) {
  Solo solo;
  solo.set_number(remote_key, 0, 10);
  solo.atomic_request(rc_fetch_add, first_received, 1);
  const auto sent = solo.transmit();
  solo.qp.transmit_refused(solo.now, sent);
  const auto again = solo.transmit();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].headers, sent[0].headers);
  EXPECT_EQ(solo.number_at(remote_key, 0), 11u);
}

TEST(AtomicResponder, AnAtomicInTheMiddleOfAMessageIsRefused) {
  Solo solo;
  const std::uint64_t before = solo.number_at(remote_key, 0);
  solo.request(rc_write_first, first_received, 1024, 2048);
  solo.atomic_request(rc_fetch_add, first_received + 1, 1);
  EXPECT_EQ(solo.qp.state(), QpState::err);
  EXPECT_NE(solo.number_at(remote_key, 0), before + 1);
}

}  // namespace
}  // namespace beeline::proto::testing
