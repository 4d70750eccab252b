#include "verbs/common/async_events.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

namespace beeline::verbs {
namespace {

class AsyncEventsTest : public testing::Test {
 public:
  AsyncEventsTest() : fd_(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE | EFD_NONBLOCK)) { events_.use(fd_); }
  ~AsyncEventsTest() override { close(fd_); }

 protected:
  bool readable() const {
    pollfd entry{fd_, POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
  }

  int fd_;
  AsyncEvents events_;
  ibv_qp qp_{};
  ibv_cq cq_{};
  AsyncSource of_qp_{&qp_}, of_cq_{&cq_};
};

TEST_F(AsyncEventsTest, OneReadableUnitPerEventInTheOrderOfTheirComing) {
  events_.attach(of_qp_);
  events_.attach(of_cq_);
  EXPECT_FALSE(readable());
  events_.raise(of_qp_, IBV_EVENT_COMM_EST);
  events_.raise(of_cq_, IBV_EVENT_CQ_ERR);
  events_.raise(of_qp_, IBV_EVENT_QP_FATAL);
  ibv_async_event event{};
  ASSERT_EQ(events_.next(&event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_COMM_EST);
  EXPECT_EQ(event.element.qp, &qp_);
  ASSERT_EQ(events_.next(&event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, &cq_);
  EXPECT_TRUE(readable());
  ASSERT_EQ(events_.next(&event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_FATAL);
  EXPECT_FALSE(readable());
  EXPECT_EQ(events_.next(&event), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(events_.detach(of_qp_), 2u);
  EXPECT_EQ(events_.detach(of_cq_), 1u);
}

TEST_F(AsyncEventsTest, WhatNobodyFetchedIsNotRepeated) {
  events_.attach(of_qp_);
  for (int i = 0; i < 1000; ++i) events_.raise(of_qp_, IBV_EVENT_QP_ACCESS_ERR);
  ibv_async_event event{};
  EXPECT_EQ(events_.next(&event), 0);
  EXPECT_FALSE(readable());
  events_.raise(of_qp_, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_TRUE(readable()) << "after the fetch it is news";
  EXPECT_EQ(events_.detach(of_qp_), 1u);
}

TEST_F(AsyncEventsTest, MoreKindsThanThereAreDoNotOverflow) {
  events_.attach(of_qp_);
  for (int type = IBV_EVENT_CQ_ERR; type <= IBV_EVENT_WQ_FATAL; ++type)
    events_.raise(of_qp_, static_cast<ibv_event_type>(type));
  int fetched = 0;
  ibv_async_event event{};
  while (events_.next(&event) == 0) EXPECT_EQ(event.event_type, fetched++);
  EXPECT_EQ(fetched, 8);
  EXPECT_EQ(events_.detach(of_qp_), 8u);
}

TEST_F(AsyncEventsTest, EventsOfWhatIsDestroyedAreDropped) {
  events_.attach(of_qp_);
  events_.attach(of_cq_);
  events_.raise(of_qp_, IBV_EVENT_COMM_EST);
  events_.raise(of_cq_, IBV_EVENT_CQ_ERR);
  events_.raise(of_qp_, IBV_EVENT_SQ_DRAINED);
  EXPECT_EQ(events_.detach(of_qp_), 0u);
  ibv_async_event event{};
  ASSERT_EQ(events_.next(&event), 0);
  EXPECT_EQ(event.element.cq, &cq_);
  EXPECT_FALSE(readable());
  EXPECT_EQ(events_.detach(of_cq_), 1u);
}

TEST(AsyncAcknowledge, WaitingEndsWithTheLastOne) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
  std::uint32_t completed = 0;
  std::atomic<int> given{0};
  std::thread giver([&] {
    for (int i = 0; i < 3; ++i) {
      ++given;
      acknowledge_async(mutex, cond, completed);
    }
  });
  await_async(mutex, cond, completed, 3);
  EXPECT_EQ(given, 3);
  giver.join();
}

}  // namespace
}  // namespace beeline::verbs
