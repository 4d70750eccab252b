// The small parts of the wire lane by themselves.

#include <gtest/gtest.h>

#include "proto/reliability/atomic_results.h"
#include "proto/reliability/read_jobs.h"
#include "proto/reliability/retransmit_timer.h"
#include "proto/reliability/segmentation.h"
#include "proto/ring.h"

namespace beeline::proto {
namespace {

TEST(Segmentation, CountsAndSizesPackets) {
  for (const std::uint32_t mtu : {256u, 1024u, 4096u}) {
    for (const std::uint32_t length :
         {0u, 1u, mtu - 1, mtu, mtu + 1, 2 * mtu, 5 * mtu + 7, max_message_bytes - 1, max_message_bytes}) {
      const std::uint32_t count = packet_count(length, mtu);
      EXPECT_GE(count, 1u);
      const std::uint32_t last = packet_bytes(length, mtu, count - 1);
      EXPECT_EQ(std::uint64_t{count - 1} * mtu + last, length);
      EXPECT_TRUE(last != 0 || length == 0);
      EXPECT_LE(last, mtu);
    }
  }
}

TEST(Segmentation, PlacesPackets) {
  using enum wire::Position;
  EXPECT_EQ(position_of(0, 1), only);
  EXPECT_EQ(position_of(0, 2), first);
  EXPECT_EQ(position_of(1, 2), last);
  EXPECT_EQ(position_of(1, 3), middle);
}

// The opcode that is chosen has, in the table of opcodes, the place and the headers that were meant.
TEST(Segmentation, ChoosesOpcodesThatTheTableDescribesSo) {
  using wire::Position;
  for (const WrOpcode wr : {WrOpcode::send, WrOpcode::send_imm, WrOpcode::write, WrOpcode::write_imm}) {
    for (const Position position : {Position::first, Position::middle, Position::last, Position::only}) {
      const wire::OpcodeInfo& row = wire::info(request_opcode(wr, position));
      const bool is_write = wr == WrOpcode::write || wr == WrOpcode::write_imm;
      EXPECT_EQ(row.kind, is_write ? wire::Kind::write : wire::Kind::send);
      EXPECT_EQ(row.position, position);
      EXPECT_EQ(row.has_reth, is_write && row.starts_message());
      const bool immediate = wr == WrOpcode::send_imm || wr == WrOpcode::write_imm;
      EXPECT_EQ(row.has_immediate, immediate && row.ends_message());
    }
  }
  for (const Position position : {Position::first, Position::middle, Position::last, Position::only}) {
    EXPECT_EQ(wire::info(response_opcode(position)).position, position);
    EXPECT_EQ(wire::info(response_opcode(position)).kind, wire::Kind::read_response);
    EXPECT_EQ(request_opcode(WrOpcode::read, position), wire::Opcode::rc_read_request);
  }
}

TEST(Segmentation, ChoosesOpcodesOfAtomicsAndInvalidation) {
  using wire::Position;
  for (const Position position : {Position::first, Position::middle, Position::last, Position::only}) {
    EXPECT_EQ(request_opcode(WrOpcode::compare_swap, position), wire::Opcode::rc_compare_swap);
    EXPECT_EQ(request_opcode(WrOpcode::fetch_add, position), wire::Opcode::rc_fetch_add);
    const wire::OpcodeInfo& row = wire::info(request_opcode(WrOpcode::send_inv, position));
    EXPECT_EQ(row.kind, wire::Kind::send);
    EXPECT_EQ(row.position, position);
    EXPECT_EQ(row.has_ieth, row.ends_message());
  }
}

TEST(AtomicResults, KeepTheLastOnes) {
  AtomicResults results;
  EXPECT_FALSE(results.find(Psn{0}, 16));
  for (std::uint32_t i = 0; i < 40; ++i) {
    results.add(Psn{i}, 100 + i);
    EXPECT_EQ(results.find(Psn{i}, 1), 100 + i);
    for (std::uint32_t age = 0; age < 20; ++age) {
      const bool kept = age <= i && age < max_outstanding_reads;
      EXPECT_EQ(results.find(Psn{i} - age, 16).has_value(), kept);
      EXPECT_EQ(results.find(Psn{i} - age, 4).has_value(), kept && age < 4);
    }
  }
  results.add(Psn{39}, 7);
  EXPECT_EQ(results.find(Psn{39}, 16), 7u) << "the newest of its PSN";
  results.clear();
  EXPECT_FALSE(results.find(Psn{39}, 16));
}

TEST(RetransmitTimer, TheConfiguredTimeoutIsThatOfTheSpecification) {
  EXPECT_EQ(ack_timeout(0), Duration{0});
  EXPECT_EQ(ack_timeout(1), 8192ns);
  EXPECT_EQ(ack_timeout(14), 67'108'864ns);
  EXPECT_EQ(ack_timeout(31), Duration{4096ll << 31});
}

TEST(RetransmitTimer, StaysWithinItsBoundsWhateverIsConfigured) {
  for (std::uint8_t index = 0; index < 32; ++index) {
    for (const Duration round_trip : {Duration{0}, Duration{1}, Duration{50us}, Duration{1h}}) {
      RetransmitTimer timer;
      timer.configure(index, 7);
      timer.sample(round_trip);
      TimePoint now{1};
      timer.arm(now);
      const Duration ceiling =
          index == 0 ? max_retransmit_timeout : std::max(ack_timeout(index), min_retransmit_timeout);
      for (int i = 0; i < 40 && !timer.given_up(now); ++i) {
        EXPECT_GT(timer.deadline(), now);
        EXPECT_LE(timer.deadline() - now, ceiling);
        now = timer.deadline();
        timer.back_off(now);
      }
      EXPECT_EQ(timer.given_up(now + 8 * ceiling), index != 0);
    }
  }
}

TEST(RetransmitTimer, TimeInWhichNobodyLookedIsNotHeldAgainstThePeer) {
  RetransmitTimer timer;
  timer.configure(14, 7);  // 67 ms, eight times
  TimePoint now{0};
  timer.arm(now);
  const TimePoint first = timer.deadline();
  now = first + 1h;  // the process was stopped
  timer.expire(now);
  EXPECT_FALSE(timer.given_up(now));
  timer.back_off(now);
  // From here on it gives up as it would have without the gap.
  while (!timer.given_up(now)) {
    now = timer.deadline();
    timer.expire(now);
    if (!timer.given_up(now)) timer.back_off(now);
  }
  EXPECT_EQ(now, TimePoint{0} + 8 * ack_timeout(14) + 1h);
}

TEST(RetransmitTimer, SpeedsUpStepByStepOrWithAMeasurement) {
  RetransmitTimer timer;
  timer.configure(0, 7);
  timer.sample(50us);
  timer.arm({0});
  for (int i = 0; i < 4; ++i) timer.back_off({0});
  EXPECT_EQ(timer.deadline(), TimePoint{0} + 16ms);
  timer.progress({0}, true);
  EXPECT_EQ(timer.deadline(), TimePoint{0} + 8ms);
  timer.sample(50us);
  timer.progress({0}, true);
  EXPECT_EQ(timer.deadline(), TimePoint{0} + 1ms);
  timer.progress({0}, false);
  EXPECT_FALSE(timer.running());
}

TEST(RetransmitTimer, FollowsASlowPeer) {
  RetransmitTimer timer;
  timer.configure(0, 7);
  for (int i = 0; i < 50; ++i) timer.sample(20ms);
  timer.arm({0});
  EXPECT_GE(timer.deadline(), TimePoint{0} + 20ms);
  EXPECT_LE(timer.deadline(), TimePoint{0} + 40ms);
}

ReadJob job(std::uint32_t psn, std::uint32_t packets, bool duplicate = false) {
  ReadJob made;
  made.first_psn = Psn{psn};
  made.packets = packets;
  made.address = 0x1000 + psn;
  made.length = packets;
  made.duplicate = duplicate;
  return made;
}

std::vector<std::uint32_t> drain(ReadJobs& jobs) {
  std::vector<std::uint32_t> psns;
  while (ReadJob* current = jobs.current()) {
    psns.push_back(current->next_psn().value);
    ++current->sent;
  }
  return psns;
}

TEST(ReadJobs, AnswerInOrder) {
  ReadJobs jobs;
  EXPECT_FALSE(jobs.pending());
  EXPECT_FALSE(jobs.has_room(0));
  EXPECT_TRUE(jobs.has_room(1));
  jobs.add_new(job(10, 2));
  EXPECT_TRUE(jobs.has_room(2));
  jobs.add_new(job(12, 1));
  EXPECT_FALSE(jobs.has_room(2));
  EXPECT_EQ(drain(jobs), (std::vector<std::uint32_t>{10, 11, 12}));
  EXPECT_FALSE(jobs.pending());
  EXPECT_TRUE(jobs.has_room(2));
}

TEST(ReadJobs, ARepetitionComesBeforeLaterReads) {
  ReadJobs jobs;
  jobs.add_new(job(20, 3));
  ++jobs.current()->sent;
  jobs.add_duplicate(job(10, 2, true), 4);
  EXPECT_EQ(drain(jobs), (std::vector<std::uint32_t>{10, 11, 21, 22}));
}

TEST(ReadJobs, ARepetitionRewindsAnAnswerUnderWay) {
  ReadJobs jobs;
  jobs.add_new(job(10, 5));
  jobs.current()->sent = 3;
  jobs.add_duplicate(job(11, 4, true), 4);
  EXPECT_EQ(drain(jobs), (std::vector<std::uint32_t>{11, 12, 13, 14}));
}

TEST(ReadJobs, ARepetitionOfWhatIsStillToComeAddsNothing) {
  ReadJobs jobs;
  jobs.add_new(job(10, 5));
  ++jobs.current()->sent;
  jobs.add_duplicate(job(12, 3, true), 4);
  EXPECT_EQ(drain(jobs), (std::vector<std::uint32_t>{11, 12, 13, 14}));
}

TEST(ReadJobs, RepetitionsAreBounded) {
  ReadJobs jobs;
  for (std::uint32_t i = 0; i < 100; ++i) jobs.add_duplicate(job(10 * i, 1, true), max_outstanding_reads);
  for (std::uint32_t i = 0; i < max_outstanding_reads; ++i) {
    EXPECT_TRUE(jobs.has_room(1000));
    jobs.add_new(job(2000 + i, 1));
  }
  EXPECT_FALSE(jobs.has_room(1000)) << "whatever the limit";
  EXPECT_EQ(drain(jobs).size(), 2 * max_outstanding_reads);
}

TEST(ReadJobs, TakesBackWhatWasNotSent) {
  ReadJobs jobs;
  jobs.add_new(job(0xFFFFFE, 4));
  EXPECT_EQ(drain(jobs).size(), 4u);
  jobs.take_back(Psn{0xFFFFFF});
  EXPECT_EQ(drain(jobs), (std::vector<std::uint32_t>{0xFFFFFF, 0, 1}));
  jobs.drop_finished();
  jobs.take_back(Psn{0});
  EXPECT_FALSE(jobs.pending());
}

TEST(Ring, KeepsOrderAcrossItsEnd) {
  Ring<int> ring(3);
  EXPECT_EQ(ring.slots(), 4u);
  int expected = 0;
  for (int i = 0; i < 100; ++i) {
    ring.push() = i;
    if (ring.full()) {
      EXPECT_EQ(ring.front(), expected++);
      ring.pop();
    }
  }
  EXPECT_EQ(ring.size(), 3u);
  EXPECT_EQ(ring.back(), 99);
  ring.pop_back();
  EXPECT_EQ(ring.back(), 98);
  ring.clear();
  EXPECT_TRUE(ring.empty());
}

}  // namespace
}  // namespace beeline::proto
