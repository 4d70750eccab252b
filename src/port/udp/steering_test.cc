#include "port/udp/steering.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/random.h"
#include "port/udp/data_socket.h"
#include "port/udp/test_support.h"

namespace beeline::port::test {
namespace {

TEST(Probe, EncodesAndParsesAsInverses) {
  for (const unsigned index : {0u, 1u, 200u, 255u}) {
    const Probe probe{static_cast<std::uint8_t>(index), Slot{static_cast<std::uint8_t>(index / 2)},
                      0x0123456789ABCDEF};
    const auto bytes = encode(probe);
    const auto parsed = parse_probe(bytes);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->index, probe.index);
    EXPECT_EQ(parsed->prober.value, probe.prober.value);
    EXPECT_EQ(parsed->nonce, probe.nonce);
  }
}

TEST(Probe, NothingElseParses) {
  const auto good = encode(Probe{1, Slot{2}, 3});
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(parse_probe(Bytes(good).first(length))) << length;
  for (const std::size_t fixed : {0u, 2u, 3u, 4u, 6u, 7u}) {
    auto bad = good;
    bad[fixed] ^= std::byte{1};
    EXPECT_FALSE(parse_probe(bad)) << fixed;
  }
}

// A group as the kernel keeps it: an index that is there goes to its socket, another to
// one that the hash picks.
struct Group {
  std::vector<int> slots;
  std::size_t hashed = 0;
  Slot holder(int index) const {
    const auto i = static_cast<std::size_t>(index);
    return Slot{static_cast<std::uint8_t>(slots[i < slots.size() ? i : hashed % slots.size()])};
  }
};

Group make_group(Prng& random, std::size_t size) {
  Group group;
  for (int slot = 0; slot < 256; ++slot) group.slots.push_back(slot);
  for (std::size_t i = group.slots.size(); i > 1; --i)
    std::swap(group.slots[i - 1], group.slots[random.below(i)]);
  group.slots.resize(size);
  group.hashed = random.below(size);
  return group;
}

void expect_table(const SteeringTable& table, const Group& group) {
  SteeringTable expected;
  for (std::size_t i = 0; i < group.slots.size(); ++i)
    expected.index_of_slot[static_cast<std::size_t>(group.slots[i])] = static_cast<std::int16_t>(i);
  EXPECT_EQ(table, expected);
}

TEST(IndexLearner, LearnsGroupsOfEverySizeFromAnswersInAnyOrder) {
  Prng random(17);
  for (std::size_t size = 1; size <= 256; ++size) {
    const Group group = make_group(random, size);
    IndexLearner learner;
    learner.begin(99, {});
    bool complete = false;
    while (!complete) {
      const auto due = learner.take_probes();
      ASSERT_GT(due.count, 0) << "stuck at size " << size;
      EXPECT_LE(due.first + due.count, static_cast<int>(std::max<std::size_t>(4, 2 * size)))
          << "too many probes";
      std::vector<int> order(static_cast<std::size_t>(due.count));
      std::iota(order.begin(), order.end(), due.first);
      for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
      for (const int index : order)
        complete = learner.record(99, static_cast<std::uint8_t>(index), group.holder(index)) || complete;
    }
    EXPECT_FALSE(learner.active());
    expect_table(learner.table(), group);
  }
}

TEST(IndexLearner, IgnoresOtherRoundsAndIndicesItDidNotAskFor) {
  IndexLearner learner;
  EXPECT_FALSE(learner.record(0, 0, Slot{1}));  // before any round
  learner.begin(5, {});
  EXPECT_FALSE(learner.record(5, 0, Slot{1}));  // asked nothing yet
  const auto due = learner.take_probes();
  EXPECT_FALSE(learner.record(4, 0, Slot{1}));
  EXPECT_FALSE(learner.record(5, static_cast<std::uint8_t>(due.count), Slot{1}));
  EXPECT_EQ(learner.table(), SteeringTable{});
}

TEST(IndexLearner, GivesUpOnceAndTakesLateAnswers) {
  IndexLearner learner;
  learner.begin(5, TimePoint{0});
  learner.take_probes();
  EXPECT_FALSE(learner.record(5, 1, Slot{7}));
  EXPECT_FALSE(learner.give_up_if_late(TimePoint{0} + 1ms));
  EXPECT_TRUE(learner.give_up_if_late(TimePoint{0} + 1s));
  EXPECT_FALSE(learner.give_up_if_late(TimePoint{0} + 2s));
  EXPECT_EQ(learner.table().index_of_slot[7], 1);
  EXPECT_TRUE(learner.record(5, 0, Slot{3}));  // a busy process answers at last
  EXPECT_FALSE(learner.record(5, 0, Slot{3}));
  EXPECT_EQ(learner.table().index_of_slot[3], 0);
  EXPECT_EQ(learner.take_probes().count, 0);
}

TEST(IndexLearner, LiesCostNothingButSteering) {
  Prng random(3);
  for (int round = 0; round < 200; ++round) {
    IndexLearner learner;
    learner.begin(1, {});
    for (int i = 0; i < 600; ++i) {
      learner.take_probes();
      learner.record(1, static_cast<std::uint8_t>(random.next()),
                     Slot{static_cast<std::uint8_t>(random.next())});
    }
    const SteeringTable table = learner.table();
    for (const std::int16_t index : table.index_of_slot) EXPECT_TRUE(index >= -1 && index < 256);
    EXPECT_LT(steering_program(table).size(), 600u);
  }
}

// --- the program, run by the kernel ---

class SteeringProgram : public ::testing::Test {
 protected:
  static constexpr int members = 5;
  void SetUp() override {
    for (int i = 0; i < members; ++i) {
      auto socket = open_data_socket(address_, 0);
      ASSERT_TRUE(socket) << socket.error().message;
      sockets_.push_back(std::move(*socket));
    }
  }
  // Which socket got the datagram; it is taken.
  int arrival(Bytes datagram) {
    stranger_.send(address_, datagram);
    std::vector<pollfd> all;
    for (const Descriptor& socket : sockets_) all.push_back({socket.get(), POLLIN, 0});
    EXPECT_EQ(::poll(all.data(), all.size(), static_cast<int>(patience / 1ms)), 1);
    for (int i = 0; i < members; ++i) {
      std::byte taken[64];
      if (::recv(sockets_[i].get(), taken, sizeof taken, MSG_DONTWAIT) >= 0) return i;
    }
    return -1;
  }
  IpAddress address_ = own_address(12);
  Stranger stranger_{address_};
  std::vector<Descriptor> sockets_;
};

TEST_F(SteeringProgram, IsThereFromTheFirstSocketOn) {
  for (int index = 0; index < members; ++index)
    EXPECT_EQ(arrival(encode(Probe{static_cast<std::uint8_t>(index), Slot{9}, 1})), index);
}

TEST_F(SteeringProgram, FollowsTheTable) {
  SteeringTable table;
  for (int slot = 0; slot < 256; ++slot)
    table.index_of_slot[slot] = static_cast<std::int16_t>((slot * 7 + 3) % members);
  ASSERT_TRUE(attach_steering(sockets_[2].get(), table));
  for (int slot = 0; slot < 256; ++slot)
    EXPECT_EQ(arrival(packet_for(Slot{static_cast<std::uint8_t>(slot)})), (slot * 7 + 3) % members) << slot;
}

TEST_F(SteeringProgram, TakesAnUnknownSlotForAnIndex) {
  ASSERT_TRUE(attach_steering(sockets_[0].get(), SteeringTable{}));
  for (int slot = 0; slot < members; ++slot)
    EXPECT_EQ(arrival(packet_for(Slot{static_cast<std::uint8_t>(slot)})), slot);
  // An index that is not there: somebody gets it, always the same for one flow.
  const int somebody = arrival(packet_for(Slot{200}));
  EXPECT_EQ(arrival(packet_for(Slot{99})), somebody);
}

TEST_F(SteeringProgram, SendsProbesToTheirIndex) {
  SteeringTable table;
  table.index_of_slot.fill(4);
  ASSERT_TRUE(attach_steering(sockets_[0].get(), table));
  for (int index = 0; index < members; ++index)
    EXPECT_EQ(arrival(encode(Probe{static_cast<std::uint8_t>(index), Slot{9}, 1})), index);
}

TEST_F(SteeringProgram, SurvivesShortDatagrams) {
  SteeringTable table;
  table.index_of_slot.fill(3);
  ASSERT_TRUE(attach_steering(sockets_[0].get(), table));
  for (std::size_t length = 0; length <= 5; ++length)
    EXPECT_EQ(arrival(std::vector<std::byte>(length, std::byte{4})), 0) << length;
  EXPECT_EQ(arrival(std::vector<std::byte>(6, std::byte{4})), 3);
  EXPECT_EQ(arrival(std::vector<std::byte>(1, std::byte{0xFF})), 0);
}

}  // namespace
}  // namespace beeline::port::test
