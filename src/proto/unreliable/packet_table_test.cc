// Every opcode in every state at every place, for UC and UD: nothing is answered, and the rule of the row
// holds.

#include <gtest/gtest.h>

#include "proto/ops/qp_state.h"
#include "proto/testing/unreliable_solo.h"
#include "wire/printer.h"

namespace beeline::proto::testing {
namespace {

// Beside where a packet stands in the PSN sequence, what came before it.
enum class Place { expected, behind, ahead, in_send, in_write };
constexpr std::array all_places = {Place::expected, Place::behind, Place::ahead, Place::in_send,
                                   Place::in_write};

constexpr wire::Service service_of(QpType type) {
  return type == QpType::uc ? wire::Service::uc : wire::Service::ud;
}
bool receives_in(QpState state) {
  return state == QpState::rtr || state == QpState::rts || state == QpState::sqd || state == QpState::sqe;
}

std::unique_ptr<UnreliableSolo> make(QpType type, QpState state) {
  const QpState upto = state > QpState::rts ? QpState::rts : state;
  auto solo = std::make_unique<UnreliableSolo>(type, upto);
  EXPECT_EQ(solo->receive(8000, 1), state == QpState::reset ? PostResult::bad_state : PostResult::ok);
  const bool goes_on = state == QpState::sqd || state == QpState::err;
  EXPECT_TRUE(!goes_on || solo->go(state));
  if (state == QpState::sqe) {
    solo->post(WrOpcode::send, 4, 10, Key{0x999});
    EXPECT_TRUE(solo->transmit().empty());
    EXPECT_EQ(solo->completions().size(), 1u);
  }
  solo->completions();
  EXPECT_EQ(solo->qp.state(), state);
  return solo;
}

// How the queue pair must end up: with a completed receive, with bytes written, with a message begun, or
// with nothing.
enum class Outcome { dropped, received, written, begun };

Outcome outcome_of(QpType type, QpState state, Place place, const wire::OpcodeInfo& row) {
  if (row.service != service_of(type) || !receives_in(state)) return Outcome::dropped;
  if (row.starts_message()) {
    if (!row.ends_message()) return Outcome::begun;
    return row.kind == wire::Kind::send || row.has_immediate ? Outcome::received : Outcome::written;
  }
  const bool continues = (place == Place::in_send && row.kind == wire::Kind::send) ||
                         (place == Place::in_write && row.kind == wire::Kind::write);
  if (!continues) return Outcome::dropped;
  if (!row.ends_message()) return Outcome::begun;
  return row.kind == wire::Kind::send || row.has_immediate ? Outcome::received : Outcome::written;
}

void check(QpType type, QpState state, Place place, const wire::OpcodeInfo& row) {
  const auto solo = make(type, state);
  const std::uint32_t bytes = row.payload == wire::PayloadRule::full ? 1024 : 4;
  if (place == Place::in_send) solo->packet(wire::Opcode::uc_send_first, first_received, 1024);
  if (place == Place::in_write)
    solo->packet(wire::Opcode::uc_write_first, first_received, 1024, row.ends_message() ? 1028 : 4096);
  const Psn psn = place == Place::expected ? first_received
                  : place == Place::behind ? first_received - 1
                  : place == Place::ahead  ? first_received + 2
                                           : first_received + 1;
  for (const Key key : {local_key, remote_key}) {  // what the packet in front wrote
    auto& memory = solo->memory.find(key)->bytes;
    std::fill(memory.begin(), memory.end(), std::byte{1});
  }
  const auto dropped_before = solo->qp.counters().dropped_packets;
  const auto local = solo->memory.find(local_key)->bytes;
  const auto remote = solo->memory.find(remote_key)->bytes;
  solo->packet(row.opcode, psn, row.payload == wire::PayloadRule::none ? 0 : bytes,
               row.ends_message() ? bytes : 4096);

  const Outcome outcome = outcome_of(type, state, place, row);
  const auto completions = solo->completions();
  EXPECT_EQ(completions.size(), outcome == Outcome::received ? 1u : 0u);
  for (const Completion& completion : completions) EXPECT_EQ(completion.status, WcStatus::success);
  EXPECT_EQ(solo->qp.counters().dropped_packets - dropped_before, outcome == Outcome::dropped ? 1u : 0u);
  const bool delivers = outcome != Outcome::dropped;
  const bool is_write = row.kind == wire::Kind::write;
  EXPECT_EQ(solo->memory.find(local_key)->bytes != local, delivers && !is_write);
  EXPECT_EQ(solo->memory.find(remote_key)->bytes != remote, delivers && is_write);
  EXPECT_EQ(solo->qp.state(), state);
  EXPECT_FALSE(solo->qp.wants_transmit(solo->now));
  EXPECT_TRUE(solo->transmit().empty());
  EXPECT_EQ(solo->qp.next_timeout(), TimePoint::never());
}

TEST(UnreliablePacketTable, EveryOpcodeInEveryStateAtEveryPlace) {
  int cases = 0;
  for (const QpType type : {QpType::uc, QpType::ud}) {
    for (const wire::OpcodeInfo& row : wire::opcode_table()) {
      for (const QpState state : all_qp_states) {
        for (const Place place : all_places) {
          if (type == QpType::ud && place > Place::ahead) continue;
          SCOPED_TRACE(std::string(row.name) + " in " + std::string(name(state)) + " place " +
                       std::to_string(static_cast<int>(place)));
          check(type, state, place, row);
          ++cases;
        }
      }
    }
  }
  EXPECT_EQ(cases, static_cast<int>(wire::opcode_table().size() * qp_state_count * (5 + 3)));
}

TEST(UnreliablePacketTable, PacketsOfOtherPartitionsAreDropped) {
  const std::pair<std::uint16_t, bool> rows[] = {
      {0xFFFF, true}, {0x7FFF, true}, {0x8001, false}, {0x0000, false}, {0xFFFE, false}};
  for (const QpType type : {QpType::uc, QpType::ud}) {
    for (const auto& [pkey, accepted] : rows) {
      const auto solo = make(type, QpState::rts);
      wire::Headers headers = Solo::header(
          type == QpType::uc ? wire::Opcode::uc_send_only : wire::Opcode::ud_send_only, first_received);
      headers.bth.pkey = pkey;
      headers.deth = {own_qkey, peer_qpn};
      solo->give(headers, solo->payload(4));
      EXPECT_EQ(solo->completions().size(), accepted ? 1u : 0u) << std::hex << pkey;
      EXPECT_EQ(solo->qp.counters().dropped_packets, accepted ? 0u : 1u);
    }
  }
}

// A queue pair follows the transition table of its type, from every state to every state; SQE is reached by a
// failed send.
TEST(UnreliableStates, AQueuePairFollowsTheTable) {
  for (const QpType type : {QpType::uc, QpType::ud}) {
    for (const QpState from : all_qp_states) {
      for (const QpState to : all_qp_states) {
        SCOPED_TRACE(std::string(name(from)) + " to " + std::string(name(to)));
        const auto solo = make(type, from);
        const Transition rule = transition(type, from, to);
        EXPECT_EQ(solo->go(to, rule.required).has_value(), rule.valid);
        EXPECT_EQ(solo->qp.state(), rule.valid ? to : from);
      }
    }
    EXPECT_TRUE(transition(type, QpState::sqe, QpState::rts).valid);
    EXPECT_FALSE(transition(type, QpState::rts, QpState::sqe).valid) << "only an error leads there";
  }
}

}  // namespace
}  // namespace beeline::proto::testing
