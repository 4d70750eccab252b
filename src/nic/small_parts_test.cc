// Devices, numbers, timers, budgets and queues of queue pairs.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>

#include "base/random.h"
#include "nic/card.h"
#include "nic/inflight_budget.h"
#include "nic/qpn_table.h"
#include "nic/region_table.h"
#include "nic/request_stack.h"
#include "nic/run_queue.h"
#include "nic/timer_heap.h"

namespace beeline::nic {
namespace {

TEST(Device, PathMtuLeavesRoomForTheHeaders) {
  const struct {
    std::uint32_t link, path;
  } cases[] = {{1500, 1024}, {4200, 4096}, {4184, 4096}, {4183, 2048}, {9000, 4096}, {65536, 4096},
               {1280, 1024}, {1112, 1024}, {1111, 512},  {576, 256},   {100, 256},   {0, 256}};
  for (const auto& c : cases) EXPECT_EQ(path_mtu_for_link(c.link), c.path) << c.link;
}

port::Interface interface_named(const std::string& name) {
  port::Interface interface;
  interface.name = name;
  interface.up = true;
  interface.mtu = 1500;
  interface.addresses = {IpAddress::v4(10, 0, 0, 1), *parse_address("fe80::1")};
  return interface;
}

TEST(Device, OnePerInterfaceWithAnAddress) {
  auto eth = interface_named("eth0");
  eth.mac = {0x02, 0x42, 0xAC, 0x11, 0x00, 0x02};
  auto bare = interface_named("bare");
  bare.addresses.clear();
  auto lo = interface_named("lo");
  lo.mtu = 65536;
  lo.up = false;
  const std::vector<port::Interface> interfaces{eth, bare, lo};
  const auto devices = make_devices(interfaces);
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].name, "bee0");
  EXPECT_EQ(devices[0].gids, eth.addresses);
  EXPECT_EQ(devices[0].active_mtu_bytes, 1024u);
  EXPECT_EQ(devices[0].guid, 0x0042ACFFFE110002u);
  EXPECT_TRUE(devices[0].active);
  EXPECT_EQ(devices[1].name, "bee1");
  EXPECT_EQ(devices[1].active_mtu_bytes, 4096u);
  EXPECT_FALSE(devices[1].active);
  EXPECT_NE(devices[1].guid, 0u);
  EXPECT_EQ(devices[1].guid, make_devices(interfaces)[1].guid) << "the same on every start";
}

TEST(QpnTable, NumbersCarryTheSlotAndAreHardToGuess) {
  QpnTable table(port::Slot{0xAB});
  std::set<std::uint32_t> numbers;
  auto* somebody = reinterpret_cast<QueuePair*>(&table);  // never followed
  for (std::uint32_t i = 0; i < QpnTable::max_queue_pairs; ++i) {
    const auto qpn = table.draw();
    ASSERT_TRUE(qpn);
    ASSERT_EQ(qpn->value >> 16, 0xABu);
    ASSERT_GT(qpn->value & 0xFFFF, 1u);
    ASSERT_NE(qpn->value & 0xFFFF, 0xFFFFu);
    ASSERT_TRUE(numbers.insert(qpn->value).second);
    table.insert(*qpn, somebody);
  }
  EXPECT_FALSE(table.draw()) << "full";
  const Qpn one{*numbers.begin()};
  EXPECT_EQ(table.find(one), somebody);
  EXPECT_EQ(table.find(Qpn{one.value ^ 0x10000}), nullptr) << "another slot";
  table.erase(one);
  EXPECT_EQ(table.find(one), nullptr);
  EXPECT_TRUE(table.draw());
  // The first hundred are spread, not counted.
  QpnTable fresh(port::Slot{1});
  std::set<std::uint32_t> high_nibbles;
  for (int i = 0; i < 100; ++i) high_nibbles.insert(fresh.draw()->value >> 12 & 0xF);
  EXPECT_GT(high_nibbles.size(), 8u);
}

struct Alarm {
  TimePoint timer = TimePoint::never();
  std::size_t timer_place = TimerHeap<Alarm>::nowhere;
};

TEST(TimerHeap, AgreesWithASearchOverEverything) {
  Prng random(7);
  std::vector<Alarm> alarms(50);
  TimerHeap<Alarm> heap;
  heap.reserve(alarms.size());
  for (int i = 0; i < 20000; ++i) {
    Alarm& alarm = alarms[random.below(alarms.size())];
    if (random.chance(0.3))
      heap.remove(alarm);
    else
      heap.set(alarm, random.chance(0.1) ? TimePoint::never()
                                         : TimePoint{static_cast<std::int64_t>(random.below(1000))});
    const auto soonest = std::min_element(alarms.begin(), alarms.end(),
                                          [](const Alarm& a, const Alarm& b) { return a.timer < b.timer; });
    ASSERT_EQ(heap.soonest(), soonest->timer);
    if (heap.top() != nullptr) {
      ASSERT_EQ(heap.top()->timer, soonest->timer);
    }
  }
}

// --- Queue pairs in the engine's lists

class ListsTest : public ::testing::Test {
 protected:
  std::unique_ptr<QueuePair> make(std::uint32_t qpn) {
    proto::QpSetup setup;
    setup.qpn = Qpn{qpn};
    setup.memory = &regions_;
    return std::make_unique<QueuePair>(setup, QpRequest{}, no_addresses_);
  }
  RegionTable regions_{8, 8};
  const std::vector<Gid> no_addresses_{};
  std::unique_ptr<QueuePair> a_ = make(1), b_ = make(2), c_ = make(3);
};

TEST_F(ListsTest, BudgetIsSharedByThoseThatSend) {
  InflightBudget budget;
  budget.set_total(90000);
  budget.reserve(3);
  const TimePoint start{1'000'000'000};
  EXPECT_EQ(budget.window_of(*a_), 90000u);
  budget.note_payload(*a_, start);
  EXPECT_EQ(budget.window_of(*a_), 90000u) << "alone";
  EXPECT_EQ(budget.window_of(*b_), 45000u) << "would be the second";
  budget.note_payload(*b_, start);
  budget.note_payload(*c_, start);
  EXPECT_EQ(budget.window_of(*a_), 30000u);
  budget.forget(*c_);
  EXPECT_EQ(budget.window_of(*a_), 45000u);
  budget.note_payload(*a_, start + 1s);
  EXPECT_EQ(budget.window_of(*a_), 90000u) << "the other has been silent";
  budget.set_total(10);
  EXPECT_GE(budget.window_of(*a_), 2 * 4096u) << "never less than two packets";
}

TEST_F(ListsTest, RunQueueIsFairAndHoldsEachOnce) {
  RunQueue queue;
  queue.reserve(2);
  queue.push(*a_);
  queue.push(*b_);
  queue.push(*a_);
  EXPECT_EQ(&queue.pop(), a_.get());
  queue.push(*a_);
  queue.reserve(3);  // grows while it wraps
  queue.push(*c_);
  queue.remove(*a_);
  EXPECT_EQ(&queue.pop(), b_.get());
  EXPECT_EQ(&queue.pop(), c_.get());
  EXPECT_TRUE(queue.empty());
  queue.remove(*a_);
  EXPECT_TRUE(queue.empty());
}

TEST_F(ListsTest, RequestsComeOldestFirstAndOnce) {
  RequestStack stack;
  EXPECT_TRUE(stack.empty());
  for (QueuePair* qp : {a_.get(), b_.get(), a_.get(), c_.get()}) stack.push(*qp);
  std::vector<QueuePair*> taken;
  stack.take_all([&](QueuePair& qp) { taken.push_back(&qp); });
  EXPECT_EQ(taken, (std::vector<QueuePair*>{a_.get(), b_.get(), c_.get()}));
  EXPECT_TRUE(stack.empty());
  stack.push(*a_);
  EXPECT_FALSE(stack.empty()) << "may ask again";
}

}  // namespace
}  // namespace beeline::nic
