// Every opcode in every state at every place in the PSN sequence: never a crash, and the rule
// of the row holds.

#include <gtest/gtest.h>

#include "proto/ops/qp_state.h"
#include "proto/testing/solo.h"
#include "wire/printer.h"

namespace beeline::proto::testing {
namespace {

enum class Place { expected, duplicate, ahead };

// A queue pair in the state, with a receive where one may be posted, and in RTS with a WRITE and
// a READ in flight at first_sent and first_sent + 1.
std::unique_ptr<Solo> make(QpState state) {
  const QpState upto = state > QpState::rts ? QpState::rts : state;
  auto solo = std::make_unique<Solo>(solo_options(), upto);
  if (state != QpState::reset) solo->receive(8000, 1);
  if (upto == QpState::rts) {
    solo->post(WrOpcode::write, 4, 10);
    solo->post(WrOpcode::read, 4, 11);
    EXPECT_EQ(solo->transmit().size(), 2u);
  }
  if (state > QpState::rts) {
    QpAttr attributes;
    attributes.state = state;
    EXPECT_TRUE(solo->qp.modify(solo->now, attributes, attr::state));
  }
  solo->completions();
  return solo;
}

void expect_nothing_happened(Solo& solo, const std::vector<std::byte>& local,
                             const std::vector<std::byte>& remote) {
  EXPECT_EQ(solo.memory.find(local_key)->bytes, local);
  EXPECT_EQ(solo.memory.find(remote_key)->bytes, remote);
  EXPECT_TRUE(solo.completions().empty());
}

void check_request(Solo& solo, QpState state, Place place, const wire::OpcodeInfo& row,
                   const std::vector<std::byte>& local, const std::vector<std::byte>& remote) {
  const auto sent = solo.transmit();
  if (state != QpState::rtr && state != QpState::rts && state != QpState::sqd) {
    EXPECT_TRUE(sent.empty());
    EXPECT_EQ(solo.qp.counters().dropped_packets, 1u);
    return expect_nothing_happened(solo, local, remote);
  }
  if (place == Place::duplicate && row.kind == wire::Kind::atomic_request) {  // one never executed
    EXPECT_TRUE(sent.empty());
    return expect_nothing_happened(solo, local, remote);
  }
  ASSERT_EQ(sent.size(), 1u);
  const wire::Aeth aeth = sent[0].headers.aeth;
  if (place == Place::ahead) {
    EXPECT_EQ(aeth, wire::Aeth::nak(wire::NakCode::psn_sequence, 0));
    EXPECT_EQ(sent[0].headers.bth.psn, first_received);
    return expect_nothing_happened(solo, local, remote);
  }
  if (place == Place::duplicate) {
    const bool is_read = row.kind == wire::Kind::read_request;
    EXPECT_EQ(sent[0].headers.bth.opcode,
              is_read ? wire::Opcode::rc_read_response_only : wire::Opcode::rc_acknowledge);
    EXPECT_EQ(sent[0].headers.bth.psn, first_received - 1);
    EXPECT_EQ(aeth, wire::Aeth::ack(0));
    return expect_nothing_happened(solo, local, remote);
  }
  if (!row.starts_message()) {
    EXPECT_EQ(aeth, wire::Aeth::nak(wire::NakCode::invalid_request, 0));
    EXPECT_EQ(solo.qp.state(), QpState::err);
    return;
  }
  EXPECT_EQ(aeth.kind(), wire::AckKind::ack);
  EXPECT_EQ(aeth.msn, row.ends_message() ? 1u : 0u);
  EXPECT_EQ(solo.qp.state(), state);
}

void check_answer(Solo& solo, QpState state, Place place, const wire::OpcodeInfo& row,
                  const std::vector<std::byte>& local, const std::vector<std::byte>& remote) {
  EXPECT_TRUE(solo.transmit().empty());
  if ((state != QpState::rts && state != QpState::sqd) || place != Place::expected) {
    EXPECT_EQ(solo.qp.counters().dropped_packets, 1u);
    return expect_nothing_happened(solo, local, remote);
  }
  // An ACK of the WRITE completes it. Data in answer to it makes no sense.
  if (row.kind == wire::Kind::acknowledge) {
    EXPECT_EQ(statuses(solo.completions()), (Statuses{{10, WcStatus::success}}));
  } else {
    EXPECT_EQ(statuses(solo.completions()),
              (Statuses{{10, WcStatus::bad_response}, {11, WcStatus::flushed}, {1, WcStatus::flushed}}));
    EXPECT_EQ(solo.qp.state(), QpState::err);
  }
}

TEST(PacketTable, EveryOpcodeInEveryStateAtEveryPlace) {
  int cases = 0;
  for (const wire::OpcodeInfo& row : wire::opcode_table()) {
    if (row.service != wire::Service::rc) continue;
    for (const QpState state : all_qp_states) {
      if (state == QpState::sqe) continue;  // no RC queue pair can be brought there
      for (const Place place : {Place::expected, Place::duplicate, Place::ahead}) {
        const auto solo = make(state);
        const auto local = solo->memory.find(local_key)->bytes;
        const auto remote = solo->memory.find(remote_key)->bytes;
        const Psn base = row.is_request() ? first_received : first_sent;
        const Psn psn = place == Place::expected ? base : place == Place::duplicate ? base - 1 : base + 2;
        wire::Headers headers = Solo::header(row.opcode, psn);
        const std::uint32_t bytes = row.payload == wire::PayloadRule::full   ? 1024
                                    : row.payload == wire::PayloadRule::none ? 0
                                                                             : 4;
        headers.atomic = {remote_base, remote_key, 1, 0};
        headers.invalidate = spare_key;
        headers.reth.length = row.kind == wire::Kind::read_request ? 4 : row.ends_message() ? bytes : 4096;
        SCOPED_TRACE(wire::to_string(headers, bytes) + " in " + std::string(name(state)));
        solo->give(headers, solo->payload(bytes));
        if (row.is_request()) {
          check_request(*solo, state, place, row, local, remote);
        } else {
          check_answer(*solo, state, place, row, local, remote);
        }
        EXPECT_EQ(solo->qp.counters().packets_received, 1u);
        ++cases;
      }
    }
  }
  EXPECT_EQ(cases, 23 * 6 * 3);
}

TEST(PacketTable, OpcodesOfOtherServicesAreDropped) {
  const auto solo = make(QpState::rts);
  wire::OpcodeInfo foreign = wire::info(wire::Opcode::rc_send_only);
  foreign.service = wire::Service::uc;
  solo->qp.handle_packet(solo->now, {&foreign, Solo::header(foreign.opcode, first_received), {}});
  EXPECT_TRUE(solo->completions().empty());
  EXPECT_EQ(solo->qp.counters().dropped_packets, 1u);
}

TEST(PacketTable, PacketsOfOtherPartitionsAreDropped) {
  const std::pair<std::uint16_t, bool> rows[] = {
      {0xFFFF, true}, {0x7FFF, true}, {0x8001, false}, {0x0000, false}, {0xFFFE, false}};
  for (const auto& [pkey, accepted] : rows) {
    const auto solo = make(QpState::rts);
    wire::Headers headers = Solo::header(wire::Opcode::rc_send_only, first_received);
    headers.bth.pkey = pkey;
    solo->give(headers, solo->payload(4));
    EXPECT_EQ(solo->completions().size(), accepted ? 1u : 0u) << std::hex << pkey;
    EXPECT_EQ(solo->qp.counters().dropped_packets, accepted ? 0u : 1u);
  }
}

}  // namespace
}  // namespace beeline::proto::testing
