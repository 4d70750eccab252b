#include "nic/completion_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "nic/real_ports.h"

namespace beeline::nic {
namespace {

using proto::Completion;
using proto::WcStatus;

Completion completion(std::uint64_t wr_id, Qpn qpn = {}) {
  Completion c;
  c.wr_id = wr_id;
  c.qpn = qpn;
  return c;
}

class CompletionQueueTest : public ::testing::Test {
 protected:
  bool push(Completion c) { return queue_.push({&c, 1}); }
  std::vector<std::uint64_t> drain() {
    std::vector<std::uint64_t> ids;
    std::array<Completion, 3> out;
    for (int n; (n = queue_.poll(out)) > 0;)
      for (int i = 0; i < n; ++i) ids.push_back(out[static_cast<std::size_t>(i)].wr_id);
    return ids;
  }
  static void notify(void* cookie) { ++*static_cast<std::atomic<int>*>(cookie); }

  std::atomic<int> armed_{0};
  std::atomic<int> bells_{0};
  CompletionQueue queue_{4, notify, &bells_, armed_};
};

TEST_F(CompletionQueueTest, KeepsTheOrderAroundTheRing) {
  for (std::uint64_t round = 0; round < 5; ++round) {
    for (std::uint64_t i = 0; i < 3; ++i) EXPECT_TRUE(push(completion(round * 10 + i)));
    EXPECT_EQ(drain(), (std::vector<std::uint64_t>{round * 10, round * 10 + 1, round * 10 + 2}));
  }
}

TEST_F(CompletionQueueTest, OverrunGivesWhatWasThereAndThenAnErrorForGood) {
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(push(completion(i)));
  EXPECT_FALSE(queue_.overrun());
  EXPECT_FALSE(push(completion(4)));
  EXPECT_TRUE(queue_.overrun());
  EXPECT_EQ(drain(), (std::vector<std::uint64_t>{0, 1, 2, 3}));
  std::array<Completion, 1> out;
  EXPECT_EQ(queue_.poll(out), -1);
  EXPECT_FALSE(push(completion(5))) << "room does not heal it";
  EXPECT_EQ(queue_.poll(out), -1);
}

TEST_F(CompletionQueueTest, BellRingsOnceForWhatComesAfterArming) {
  push(completion(1));
  queue_.arm(false);
  EXPECT_EQ(bells_, 0) << "what is there already rings no bell";
  EXPECT_EQ(armed_, 1);
  push(completion(2));
  EXPECT_EQ(bells_, 1);
  EXPECT_EQ(armed_, 0);
  push(completion(3));
  EXPECT_EQ(bells_, 1);
}

TEST_F(CompletionQueueTest, SolicitedBellRingsForSolicitedAndFailedOnly) {
  queue_.arm(true);
  push(completion(1));
  EXPECT_EQ(bells_, 0);
  Completion solicited = completion(2);
  solicited.solicited = true;
  push(solicited);
  EXPECT_EQ(bells_, 1);
  queue_.arm(true);
  Completion failed = completion(3);
  failed.status = WcStatus::flushed;
  push(failed);
  EXPECT_EQ(bells_, 2);
}

TEST_F(CompletionQueueTest, BellForEverythingIsNotWeakened) {
  queue_.arm(false);
  queue_.arm(true);
  push(completion(1));
  EXPECT_EQ(bells_, 1);
}

TEST_F(CompletionQueueTest, BellForLessIsWidened) {
  queue_.arm(true);
  queue_.arm(false);
  EXPECT_EQ(armed_, 1);
  push(completion(1));
  EXPECT_EQ(bells_, 1);
}

TEST_F(CompletionQueueTest, OverrunRingsEveryBell) {
  for (std::uint64_t i = 0; i < 4; ++i) push(completion(i));
  queue_.arm(true);
  push(completion(5));
  EXPECT_EQ(bells_, 1);
  queue_.arm(false);
  EXPECT_EQ(bells_, 2) << "nothing else will ever ring";
}

TEST_F(CompletionQueueTest, PurgeDropsOneQueuePairOnly) {
  push(completion(0, Qpn{9}));
  push(completion(0, Qpn{9}));
  drain();  // so that the ring wraps
  push(completion(1, Qpn{7}));
  push(completion(2, Qpn{8}));
  push(completion(3, Qpn{7}));
  push(completion(4, Qpn{8}));
  queue_.purge(Qpn{7});
  EXPECT_EQ(drain(), (std::vector<std::uint64_t>{2, 4}));
  EXPECT_TRUE(push(completion(5)));
  EXPECT_EQ(drain(), (std::vector<std::uint64_t>{5}));
}

TEST_F(CompletionQueueTest, DestroyingAnArmedQueueDisarmsIt) {
  {
    CompletionQueue other(1, nullptr, nullptr, armed_);
    other.arm(false);
    EXPECT_EQ(armed_, 1);
  }
  EXPECT_EQ(armed_, 0);
}

// Sleep on the bell, as ibv_get_cq_event does: arm, look once more, sleep. No completion may be missed.
TEST(CompletionQueueThreads, NoWakeUpIsLost) {
  constexpr std::uint64_t total = 2000;
  std::atomic<int> armed{0};
  std::atomic<int> bells{0};
  CompletionQueue queue(
      total,
      [](void* cookie) {
        auto* rung = static_cast<std::atomic<int>*>(cookie);
        rung->fetch_add(1);
      },
      &bells, armed);
  std::thread producer([&] {
    for (std::uint64_t i = 0; i < total; ++i) {
      const Completion c = completion(i);
      ASSERT_TRUE(queue.push({&c, 1}));
      if (i % 7 == 0) std::this_thread::yield();
    }
  });
  std::uint64_t next = 0;
  std::array<Completion, 16> out;
  while (next < total) {
    const int seen = bells;
    queue.arm(false);
    int n = queue.poll(out);
    if (n == 0) {
      ASSERT_TRUE(test::until([&] { return bells != seen; }, [] { std::this_thread::yield(); })) << next;
      n = queue.poll(out);
    }
    for (int i = 0; i < n; ++i) ASSERT_EQ(out[static_cast<std::size_t>(i)].wr_id, next++);
  }
  producer.join();
}

}  // namespace
}  // namespace beeline::nic
