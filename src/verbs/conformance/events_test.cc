// Sleeping until a completion comes.
#include <fcntl.h>
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "verbs/conformance/conformance.h"

namespace beeline::verbs::conformance {
namespace {

bool readable(const End& end, int timeout_ms) {
  pollfd entry{end.channel->fd, POLLIN, 0};
  return poll(&entry, 1, timeout_ms) == 1;
}

void set_nonblocking(const End& end) {
  ASSERT_EQ(fcntl(end.channel->fd, F_SETFL, fcntl(end.channel->fd, F_GETFL) | O_NONBLOCK), 0);
}

int next_event(End& end, ibv_cq** cq) {
  void* context = nullptr;
  return end.provider->get_cq_event(end.channel.get(), cq, &context);
}

constexpr int long_ms = 20000;

}  // namespace

TEST_P(Events, AnArmedQueueReportsOnce) {
  End a = make_end(), b = make_end();
  connect(a, b);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(b.post_receive(i, 0, 64), 0);
  ASSERT_EQ(ibv_req_notify_cq(b.cq.get(), 0), 0);
  EXPECT_FALSE(readable(b, 0));
  ASSERT_EQ(Request(IBV_WR_SEND, a, 0, 64).post(a), 0);
  ASSERT_TRUE(readable(b, long_ms));
  ASSERT_EQ(Request(IBV_WR_SEND, a, 0, 64).post(a), 0);
  for (const ibv_wc& wc : a.wait(2)) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  b.wait(2);

  ibv_cq* cq = nullptr;
  ASSERT_EQ(next_event(b, &cq), 0);
  EXPECT_EQ(cq, b.cq.get());
  provider().ack_cq_events(cq, 1);
  EXPECT_FALSE(readable(b, 0)) << "one event per arming";
  set_nonblocking(b);
  errno = 0;
  EXPECT_EQ(next_event(b, &cq), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_P(Events, ABlockedWaiterWakes) {
  End a = make_end(), b = make_end();
  connect(a, b);
  ASSERT_EQ(b.post_receive(1, 0, 64), 0);
  ASSERT_EQ(ibv_req_notify_cq(b.cq.get(), 0), 0);
  std::thread waiter([&] {
    ibv_cq* cq = nullptr;
    ASSERT_EQ(next_event(b, &cq), 0);
    provider().ack_cq_events(cq, 1);
    EXPECT_EQ(b.wait(1)[0].status, IBV_WC_SUCCESS);
  });
  ASSERT_EQ(Request(IBV_WR_SEND, a, 0, 64).post(a), 0);
  EXPECT_EQ(a.wait(1)[0].status, IBV_WC_SUCCESS);
  waiter.join();
}

TEST_P(Events, SolicitedOnlyWaitsForSolicitedOrFailed) {
  End a = make_end(), b = make_end();
  connect(a, b);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(b.post_receive(i, 0, 64), 0);
  ASSERT_EQ(ibv_req_notify_cq(b.cq.get(), 1), 0);
  ASSERT_EQ(Request(IBV_WR_SEND, a, 0, 64).post(a), 0);
  a.wait(1);
  b.wait(1);
  EXPECT_FALSE(readable(b, 0));
  ASSERT_EQ(Request(IBV_WR_SEND, a, 0, 64).flags(IBV_SEND_SOLICITED).post(a), 0);
  ASSERT_TRUE(readable(b, long_ms));
  ibv_cq* cq = nullptr;
  ASSERT_EQ(next_event(b, &cq), 0);
  provider().ack_cq_events(cq, 1);
  b.wait(1);

  ASSERT_EQ(ibv_req_notify_cq(b.cq.get(), 1), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(provider().modify_qp(b.qp.get(), &attr, IBV_QP_STATE), 0);
  EXPECT_TRUE(readable(b, long_ms)) << "a flushed receive is a failed completion";
  ASSERT_EQ(next_event(b, &cq), 0);
  provider().ack_cq_events(cq, 1);
}

TEST_P(Events, DestroyWaitsForAcknowledgements) {
  End a = make_end(), b = make_end();
  connect(a, b);
  ASSERT_EQ(b.post_receive(1, 0, 64), 0);
  ASSERT_EQ(ibv_req_notify_cq(b.cq.get(), 0), 0);
  ASSERT_EQ(Request(IBV_WR_SEND, a, 0, 64).post(a), 0);
  ibv_cq* cq = nullptr;
  ASSERT_EQ(next_event(b, &cq), 0);
  b.qp.reset();
  std::atomic<bool> acknowledged{false};
  std::thread destroyer([&] {
    EXPECT_EQ(provider().destroy_cq(b.cq.release()), 0);
    EXPECT_TRUE(acknowledged) << "the queue went away under an event";
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  acknowledged = true;
  provider().ack_cq_events(cq, 1);
  destroyer.join();
}

TEST_P(Events, EventsOfADestroyedQueueAreDropped) {
  End a = make_end(), b = make_end();
  connect(a, b);
  ASSERT_EQ(b.post_receive(1, 0, 64), 0);
  ASSERT_EQ(ibv_req_notify_cq(b.cq.get(), 0), 0);
  ASSERT_EQ(Request(IBV_WR_SEND, a, 0, 64).post(a), 0);
  ASSERT_TRUE(readable(b, long_ms));
  b.qp.reset();
  ASSERT_EQ(provider().destroy_cq(b.cq.release()), 0);
  EXPECT_FALSE(readable(b, 0));
  set_nonblocking(b);
  ibv_cq* cq = nullptr;
  EXPECT_EQ(next_event(b, &cq), -1);
  EXPECT_EQ(errno, EAGAIN);
}

}  // namespace beeline::verbs::conformance
