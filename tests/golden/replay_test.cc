// The protocol core in the place of one end of captured rxe sessions: two of our own ends
// would hide a mistake that both make. README.md lists what may differ, and why.
#include <gtest/gtest.h>

#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "playback.h"

namespace beeline::test {
namespace {

struct Part {
  const char* name;
  const char* file;
  std::uint32_t qpn;
  Side ours;
  // Request packets that the recorded side sent a second time without need. Ours does not,
  // so that it finds the recorded second answer stale.
  std::size_t spurious_repetitions = 0;
};

const std::vector<Part> parts{
    {"write_responder", "rxe-write.pcap", 17, Side::server},
    {"write_requester", "rxe-write.pcap", 17, Side::client},
    {"read_responder", "rxe-read.pcap", 18, Side::server},
    {"read_requester", "rxe-read.pcap", 18, Side::client},
    {"send_responder", "rxe-send.pcap", 19, Side::server},
    {"send_requester", "rxe-send.pcap", 19, Side::client},
    {"sendlat_server", "rxe-sendlat.pcap", 20, Side::server},
    {"sendlat_client", "rxe-sendlat.pcap", 20, Side::client, 1},
    {"fetch_add_responder", "rxe-atomic_fa.pcap", 21, Side::server},
    {"fetch_add_requester", "rxe-atomic_fa.pcap", 21, Side::client},
    {"compare_swap_responder", "rxe-atomic_cas.pcap", 22, Side::server},
    {"compare_swap_requester", "rxe-atomic_cas.pcap", 22, Side::client},
    {"cm_sendlat_control_server", "rxe-cm_sendlat.pcap", 25, Side::server},
    {"cm_sendlat_control_client", "rxe-cm_sendlat.pcap", 25, Side::client},
    {"cm_sendlat_server", "rxe-cm_sendlat.pcap", 26, Side::server},
    {"cm_sendlat_client", "rxe-cm_sendlat.pcap", 26, Side::client},
    {"cm_write_control_server", "rxe-cm_write.pcap", 27, Side::server},
    {"cm_write_control_client", "rxe-cm_write.pcap", 27, Side::client},
    {"cm_write_responder", "rxe-cm_write.pcap", 28, Side::server},
    {"cm_write_requester", "rxe-cm_write.pcap", 28, Side::client},
    {"uc_write_receiver", "rxe-uc_write.pcap", 23, Side::server},
    {"uc_write_sender", "rxe-uc_write.pcap", 23, Side::client},
    {"ud_send_server", "rxe-ud_send.pcap", 24, Side::server},
    {"ud_send_client", "rxe-ud_send.pcap", 24, Side::client},
};

void PrintTo(const Part& part, std::ostream* out) { *out << part.name; }

std::vector<std::size_t> requests_of(const Session& session, Side from) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < session.events.size(); ++i)
    if (session.events[i].from == from && session.events[i].is_request()) indices.push_back(i);
  return indices;
}

std::vector<std::size_t> responses_of(const Session& session, Side from) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < session.events.size(); ++i)
    if (session.events[i].from == from && !session.events[i].is_request()) indices.push_back(i);
  return indices;
}

// The last complete content that the peer's WRITEs gave the region.
std::vector<std::byte> expected_written(const std::vector<Message>& from_peer) {
  std::vector<std::byte> bytes;
  for (const Message& message : from_peer)
    if (message.info->kind == wire::Kind::write) bytes = message.payload;
  return bytes;
}

// What each of the peer's atomics left behind: every one had a cell of its own.
std::vector<std::uint64_t> expected_cells(const std::vector<Message>& from_peer) {
  std::vector<std::uint64_t> cells;
  for (const Message& message : from_peer) {
    if (message.info->kind != wire::Kind::atomic_request) continue;
    std::uint64_t before = 0;
    std::memcpy(&before, message.payload.data(), sizeof before);
    const wire::AtomicEth& atomic = message.headers.atomic;
    if (message.info->opcode == wire::Opcode::rc_fetch_add)
      cells.push_back(before + atomic.swap_or_add);
    else
      cells.push_back(before == atomic.compare ? atomic.swap_or_add : before);
  }
  return cells;
}

proto::WcOpcode completion_opcode(wire::Opcode request) {
  if (request == wire::Opcode::rc_compare_swap) return proto::WcOpcode::compare_swap;
  return request == wire::Opcode::rc_fetch_add ? proto::WcOpcode::fetch_add : proto::WcOpcode::read;
}

class Replay : public testing::TestWithParam<Part> {
 protected:
  void SetUp() override {
    session_ = load_session(GetParam().file, Qpn{GetParam().qpn});
    ASSERT_FALSE(session_.events.empty());
  }
  Side ours() const { return GetParam().ours; }
  Side peer() const { return other(ours()); }

  Session session_;
};

void expect_same(const Comparison& comparison, std::size_t packets) {
  for (const std::string& difference : comparison.differences) ADD_FAILURE() << difference;
  // README.md, "MigReq": rxe never sets it, we always do.
  EXPECT_EQ(comparison.migration_requests, packets);
}

TEST_P(Replay, ResponsesAreTheRecordedOnes) {
  const Playback playback = play(session_, ours());
  const auto recorded = responses_of(session_, ours());
  expect_same(compare(session_, recorded, playback.responses), recorded.size());
}

TEST_P(Replay, RequestsAreTheRecordedOnes) {
  const Playback playback = play(session_, ours());
  const auto recorded = new_requests(session_, ours());
  expect_same(compare(session_, recorded, playback.requests), recorded.size());
  EXPECT_EQ(requests_of(session_, ours()).size() - recorded.size(), GetParam().spurious_repetitions);
  EXPECT_EQ(playback.counters.retransmitted_packets, 0u);
}

// README.md, "Retransmission": when to repeat is each side's own decision, what to send is not.
TEST_P(Replay, AtTheRecordedTimesOnlyRepetitionsDiffer) {
  const Playback playback = play(session_, ours(), Clock::recorded);
  const auto recorded = new_requests(session_, ours());
  expect_same(compare(session_, recorded, without_repetitions(playback.requests)), recorded.size());
  const auto responses = responses_of(session_, ours());
  expect_same(compare(session_, responses, playback.responses), responses.size());
  EXPECT_EQ(playback.requests.size() - recorded.size(), playback.counters.retransmitted_packets);
  EXPECT_EQ(playback.send_completions.size(), messages(session_, ours()).size());
  EXPECT_EQ(playback.final_state, proto::QpState::rts);
}

TEST_P(Replay, EveryWorkRequestCompletesOnceInOrder) {
  const Playback playback = play(session_, ours());
  const auto posted = messages(session_, ours());
  ASSERT_EQ(playback.send_completions.size(), posted.size());
  std::size_t reads = 0;
  for (std::size_t i = 0; i < posted.size(); ++i) {
    const proto::Completion& completion = playback.send_completions[i];
    EXPECT_EQ(completion.wr_id, i);
    EXPECT_EQ(completion.status, proto::WcStatus::success);
    EXPECT_EQ(completion.qpn, Qpn{GetParam().qpn});
    if (!brings_data(posted[i])) continue;
    EXPECT_EQ(completion.opcode, completion_opcode(posted[i].info->opcode));
    EXPECT_EQ(completion.byte_length, posted[i].payload.size());
    ASSERT_LT(reads, playback.read_data.size());
    EXPECT_EQ(playback.read_data[reads++], posted[i].payload) << "request " << i;
  }
  EXPECT_EQ(playback.final_state, proto::QpState::rts);
}

TEST_P(Replay, EverythingThatThePeerSentArrivedOnce) {
  const Playback playback = play(session_, ours());
  const auto from_peer = messages(session_, peer());
  std::size_t receives = 0;
  for (std::size_t i = 0; i < from_peer.size(); ++i) {
    if (from_peer[i].info->kind != wire::Kind::send) continue;
    ASSERT_LT(receives, playback.receives.size());
    const Received& received = playback.receives[receives++];
    EXPECT_EQ(received.completion.wr_id, i);
    EXPECT_EQ(received.completion.status, proto::WcStatus::success);
    EXPECT_EQ(received.completion.opcode, proto::WcOpcode::receive);
    EXPECT_EQ(received.payload, from_peer[i].payload);
    EXPECT_EQ(received.completion.source_qpn, from_peer[i].headers.deth.source);
  }
  EXPECT_EQ(playback.receives.size(), receives);
  EXPECT_EQ(playback.written_by_peer, expected_written(from_peer));
  EXPECT_EQ(playback.cells, expected_cells(from_peer));
  const std::size_t repeated = requests_of(session_, peer()).size() - new_requests(session_, peer()).size();
  EXPECT_EQ(playback.counters.duplicate_packets, repeated);
  EXPECT_EQ(playback.counters.out_of_sequence_packets, 0u);
  EXPECT_EQ(playback.counters.dropped_packets, GetParam().spurious_repetitions);
}

INSTANTIATE_TEST_SUITE_P(Rxe, Replay, testing::ValuesIn(parts),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

// The comparison sees every kind of change to what was recorded.
TEST(ReplayControl, AChangedRecordingIsNoticed) {
  struct Change {
    const char* file;
    std::uint32_t qpn;
    wire::Kind kind;
    std::size_t byte;
  };
  const std::vector<Change> changes{
      {"rxe-write.pcap", 17, wire::Kind::acknowledge, 15},             // MSN
      {"rxe-write.pcap", 17, wire::Kind::acknowledge, 12},             // syndrome
      {"rxe-write.pcap", 17, wire::Kind::acknowledge, 11},             // PSN
      {"rxe-read.pcap", 18, wire::Kind::read_response, 19},            // MSN or payload
      {"rxe-read.pcap", 18, wire::Kind::read_response, 500},           // payload
      {"rxe-atomic_fa.pcap", 21, wire::Kind::atomic_acknowledge, 23},  // what memory held
  };
  for (const Change& change : changes) {
    Session session = load_session(change.file, Qpn{change.qpn});
    const Playback playback = play(session, Side::server);
    const auto recorded = responses_of(session, Side::server);
    ASSERT_TRUE(compare(session, recorded, playback.responses).differences.empty());
    Event& event = session.events[recorded[1]];
    ASSERT_EQ(event.view.info->kind, change.kind);
    event.datagram[change.byte] ^= std::byte{1};
    reparse(event);
    EXPECT_EQ(compare(session, recorded, playback.responses).differences.size(), 1u)
        << "byte " << change.byte;
  }
}

TEST(ReplayControl, AMissingAndASurplusPacketAreNoticed) {
  const Session session = load_session("rxe-write.pcap", Qpn{17});
  Playback playback = play(session, Side::client);
  const auto recorded = new_requests(session, Side::client);
  playback.requests.push_back(playback.requests.back());
  EXPECT_EQ(compare(session, recorded, playback.requests).differences.size(), 1u);
  playback.requests.resize(recorded.size() - 1);
  EXPECT_EQ(compare(session, recorded, playback.requests).differences.size(), 1u);
}

}  // namespace
}  // namespace beeline::test
