#include "proto/shared_receive_queue.h"

#include <gtest/gtest.h>

#include <thread>

#include "proto/testing/solo.h"

namespace beeline::proto::testing {
namespace {

using enum wire::Opcode;
using enum WcStatus;

void count_up(void* cookie) { ++*static_cast<int*>(cookie); }

PostResult post(SharedReceiveQueue& queue, std::uint64_t wr_id, std::uint32_t length, Key key = local_key) {
  const Sge sge{local_base, length, key};
  return queue.post({wr_id, std::span(&sge, 1)});
}

bool take(SharedReceiveQueue& queue, std::uint64_t* wr_id = nullptr) {
  std::uint64_t id = 0;
  std::array<Sge, max_sge> sges;
  std::size_t count = 0;
  const bool found = queue.take(id, sges, count);
  if (wr_id != nullptr) *wr_id = id;
  return found;
}

TEST(SharedReceiveQueue, GivesInOrderWhatWasPosted) {
  SharedReceiveQueue queue(3, 2, nullptr, nullptr);
  std::uint64_t id = 0;
  std::array<Sge, max_sge> sges;
  std::size_t count = 0;
  EXPECT_FALSE(queue.take(id, sges, count));
  const Sge pieces[] = {{1, 2, Key{3}}, {4, 5, Key{6}}, {7, 8, Key{9}}};
  EXPECT_EQ(queue.post({1, std::span(pieces).first(2)}), PostResult::ok);
  EXPECT_EQ(queue.post({2, {}}), PostResult::ok);
  EXPECT_EQ(queue.post({3, std::span(pieces).first(1)}), PostResult::ok);
  EXPECT_EQ(queue.post({4, {}}), PostResult::queue_full) << "three, although the ring is larger";
  EXPECT_EQ(queue.post({4, pieces}), PostResult::too_many_sges);
  ASSERT_TRUE(queue.take(id, sges, count));
  EXPECT_EQ(id, 1u);
  ASSERT_EQ(count, 2u);
  EXPECT_EQ(sges[1].address, 4u);
  EXPECT_EQ(sges[1].length, 5u);
  EXPECT_EQ(sges[1].lkey, Key{6});
  ASSERT_TRUE(queue.take(id, sges, count));
  EXPECT_EQ(id, 2u);
  EXPECT_EQ(count, 0u);
  ASSERT_TRUE(queue.take(id, sges, count));
  EXPECT_EQ(id, 3u);
}

TEST(SharedReceiveQueue, TellsOnceWhenTheLimitIsReached) {
  int reached = 0;
  SharedReceiveQueue queue(8, 1, count_up, &reached);
  for (std::uint64_t i = 0; i < 5; ++i) post(queue, i, 4);
  EXPECT_FALSE(queue.arm(9));
  ASSERT_TRUE(queue.arm(3));
  EXPECT_EQ(queue.limit(), 3u);
  take(queue);
  take(queue);
  EXPECT_EQ(reached, 0) << "three are left: not fewer than three";
  take(queue);
  EXPECT_EQ(reached, 1);
  EXPECT_EQ(queue.limit(), 0u) << "disarmed";
  take(queue);
  EXPECT_EQ(reached, 1);
  ASSERT_TRUE(queue.arm(2));
  ASSERT_TRUE(queue.arm(0));
  take(queue);
  EXPECT_EQ(reached, 1);
  ASSERT_TRUE(queue.arm(1));
  EXPECT_FALSE(take(queue));
  EXPECT_EQ(reached, 2) << "it was empty before";
}

TEST(SharedReceiveQueue, ServesManyThreads) {
  constexpr int rounds = 5'000;
  SharedReceiveQueue queue(16, 1, nullptr, nullptr);
  std::array<int, 2> taken{};
  std::vector<std::thread> threads;
  threads.reserve(taken.size());
  for (int& count : taken)
    threads.emplace_back([&queue, &count] {
      for (int i = 0; i < rounds; ++i) {
        while (post(queue, 7, 4) != PostResult::ok) std::this_thread::yield();
        std::uint64_t id = 0;
        while (!take(queue, &id)) std::this_thread::yield();
        count += id == 7;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken[0] + taken[1], 2 * rounds);
  EXPECT_FALSE(take(queue));
}

// --- below a queue pair

TEST(SharedReceives, AQueuePairTakesFromThere) {
  SharedReceiveQueue queue(4, 1, nullptr, nullptr);
  Solo solo(solo_options(), QpState::rts, &queue);
  EXPECT_EQ(solo.receive(100), PostResult::invalid) << "it has no queue of its own";
  post(queue, 50, 3000);
  post(queue, 51, 3000);
  solo.request(rc_send_first, first_received, 1024);
  solo.request(rc_send_middle, first_received + 1, 1024);
  std::uint64_t next = 0;
  solo.request(rc_send_last, first_received + 2, 10);
  const auto done = solo.completions();
  ASSERT_EQ(statuses(done), (Statuses{{50, success}}));
  EXPECT_EQ(done[0].byte_length, 2058u);
  EXPECT_TRUE(done[0].is_receive);
  ASSERT_TRUE(take(queue, &next));
  EXPECT_EQ(next, 51u) << "one message, one request";
}

TEST(SharedReceives, TwoQueuePairsShare) {
  SharedReceiveQueue queue(4, 1, nullptr, nullptr);
  Solo one(solo_options(), QpState::rts, &queue), other(solo_options(), QpState::rts, &queue);
  for (std::uint64_t i = 0; i < 3; ++i) post(queue, i, 100);
  one.request(rc_send_only, first_received, 4);
  other.request(rc_send_only, first_received, 4);
  one.request(rc_send_only, first_received + 1, 4);
  EXPECT_EQ(statuses(one.completions()), (Statuses{{0, success}, {2, success}}));
  EXPECT_EQ(statuses(other.completions()), (Statuses{{1, success}}));
}

TEST(SharedReceives, AnEmptyQueueIsNotReady) {
  SharedReceiveQueue queue(4, 1, nullptr, nullptr);
  Solo solo(solo_options(), QpState::rts, &queue);
  solo.request(rc_send_only, first_received, 4);
  auto sent = solo.transmit();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].headers.aeth.kind(), wire::AckKind::rnr_nak);
  post(queue, 7, 100);
  solo.request(rc_send_only, first_received, 4);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{7, success}}));
}

// A program that does not poll: nothing is taken that could not be reported.
TEST(SharedReceives, WithoutRoomForCompletionsNothingIsTaken) {
  SharedReceiveQueue queue(2, 1, nullptr, nullptr);
  Solo solo(solo_options(), QpState::rts, &queue);
  for (std::uint64_t i = 0; i < 2; ++i) post(queue, i, 100);
  solo.request(rc_send_only, first_received, 4);
  solo.request(rc_send_only, first_received + 1, 4);
  post(queue, 2, 100);
  solo.transmit();
  solo.request(rc_send_only, first_received + 2, 4);
  EXPECT_EQ(solo.transmit().at(0).headers.aeth.kind(), wire::AckKind::rnr_nak);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{0, success}, {1, success}}));
  solo.request(rc_send_only, first_received + 2, 4);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{2, success}}));
}

TEST(SharedReceives, InErrorTheRequestOfTheMessageUnderWayIsFlushedAndTheRestStays) {
  SharedReceiveQueue queue(4, 1, nullptr, nullptr);
  Solo solo(solo_options(), QpState::rts, &queue);
  post(queue, 1, 3000);
  post(queue, 2, 3000);
  solo.request(rc_send_first, first_received, 1024);
  QpAttr error;
  error.state = QpState::err;
  ASSERT_TRUE(solo.qp.modify(solo.now, error, attr::state));
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, flushed}}));
  EXPECT_EQ(solo.qp.take_events(), QpEvent::last_request_reached);
  ASSERT_TRUE(solo.qp.modify(solo.now, error, attr::state));
  EXPECT_EQ(solo.qp.take_events(), QpEvent::none) << "once";
  std::uint64_t next = 0;
  ASSERT_TRUE(take(queue, &next));
  EXPECT_EQ(next, 2u);
}

TEST(SharedReceives, AnImmediateTakesOneWhenItsWriteEnds) {
  SharedReceiveQueue queue(4, 1, nullptr, nullptr);
  Solo solo(solo_options(), QpState::rts, &queue);
  post(queue, 1, 0);
  solo.request(rc_write_first, first_received, 1024, 2048);
  std::uint64_t next = 0;
  ASSERT_TRUE(take(queue, &next)) << "not taken yet";
  solo.request(rc_write_last_imm, first_received + 1, 1024);
  EXPECT_EQ(solo.transmit().back().headers.aeth.kind(), wire::AckKind::rnr_nak);
  post(queue, 2, 0);
  solo.request(rc_write_last_imm, first_received + 1, 1024);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{2, success}}));
}

}  // namespace
}  // namespace beeline::proto::testing
