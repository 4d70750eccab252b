// Asynchronous events of the card, and queues that overflow or change their size.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "verbs/soft/testing/kit.h"

namespace beeline::verbs::soft {
namespace {

class Async : public SoftVerbs {
 protected:
  void SetUp() override {
    SoftVerbs::SetUp();
    ASSERT_EQ(fcntl(context()->async_fd, F_SETFL, fcntl(context()->async_fd, F_GETFL) | O_NONBLOCK), 0);
  }
  // The next event, waited for at most 20 s, acknowledged. What both ends raise comes in any order.
  ibv_async_event next() {
    ibv_async_event event{};
    event.event_type = IBV_EVENT_CLIENT_REREGISTER;  // none of ours
    pollfd entry{context()->async_fd, POLLIN, 0};
    if (poll(&entry, 1, 20000) == 1 && provider().get_async_event(context(), &event) == 0)
      provider().ack_async_event(&event);
    return event;
  }
  bool quiet() {
    ibv_async_event event{};
    return provider().get_async_event(context(), &event) == -1 && errno == EAGAIN;
  }
};

TEST_F(Async, NoEventsWithoutReason) {
  pair_of(IBV_QPT_RC);
  ASSERT_EQ(b_->post_receive(1, 0, 64), 0);
  ASSERT_EQ(Request(IBV_WR_SEND, *a_, 0, 64).post(*a_), 0);
  a_->wait();
  b_->wait();
  EXPECT_TRUE(quiet());
}

TEST_F(Async, CommunicationIsEstablishedByTheFirstPacket) {
  a_ = make_end();
  b_ = make_end();
  advance(*a_, *b_, IBV_QPS_RTS);
  advance(*b_, *a_, IBV_QPS_RTR);
  ASSERT_EQ(b_->post_receive(1, 0, 64), 0);
  ASSERT_EQ(Request(IBV_WR_SEND, *a_, 0, 64).post(*a_), 0);
  EXPECT_EQ(a_->wait()[0].status, IBV_WC_SUCCESS);
  const ibv_async_event event = next();
  EXPECT_EQ(event.event_type, IBV_EVENT_COMM_EST);
  EXPECT_EQ(event.element.qp, b_->qp);
  EXPECT_EQ(b_->qp->events_completed, 1u);
  EXPECT_TRUE(quiet());
  b_->wait();
}

TEST_F(Async, ADrainedSendQueueSaysSoWhenAsked) {
  pair_of(IBV_QPT_RC);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  ASSERT_EQ(provider().modify_qp(a_->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  const ibv_async_event event = next();
  EXPECT_EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
  EXPECT_EQ(event.element.qp, a_->qp);
}

TEST_F(Async, AViolationIsReportedWhereItHappened) {
  pair_of(IBV_QPT_RC);
  Request request(IBV_WR_RDMA_WRITE, *a_, 0, 8);
  request.to(*b_).wr.wr.rdma.rkey ^= 0x100;
  ASSERT_EQ(request.post(*a_), 0);
  EXPECT_EQ(a_->wait()[0].status, IBV_WC_REM_ACCESS_ERR);
  const ibv_async_event event = next();
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(event.element.qp, b_->qp);
}

TEST_F(Async, AnInvalidRequestIsReportedWhereItArrived) {
  pair_of(IBV_QPT_RC);
  Request request(IBV_WR_ATOMIC_FETCH_AND_ADD, *a_, 0, 8);
  request.atomic(*b_, 1).wr.wr.atomic.remote_addr += 1;
  ASSERT_EQ(request.post(*a_), 0);
  EXPECT_EQ(a_->wait()[0].status, IBV_WC_REM_INV_REQ_ERR);
  const ibv_async_event event = next();
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_REQ_ERR);
  EXPECT_EQ(event.element.qp, b_->qp);
}

// The peer did nothing wrong and no request of ours tells of it: the queue pair's own memory is gone.
TEST_F(Async, AFaultOfThisSideIsFatalToTheQueuePair) {
  pair_of(IBV_QPT_RC);
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ibv_mr* mr = provider().reg_mr(b_->pd, page, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  ASSERT_NE(mr, nullptr);
  ASSERT_EQ(mprotect(page, 4096, PROT_NONE), 0);
  Request request(IBV_WR_RDMA_WRITE, *a_, 0, 8);
  request.wr.wr.rdma = {reinterpret_cast<std::uint64_t>(page), mr->rkey};
  ASSERT_EQ(request.post(*a_), 0);
  EXPECT_EQ(a_->wait()[0].status, IBV_WC_REM_OP_ERR);
  const ibv_async_event event = next();
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(event.element.qp, b_->qp);
  EXPECT_EQ(b_->state(), IBV_QPS_ERR);
  EXPECT_EQ(b_->qp->events_completed, 1u);
  EXPECT_TRUE(quiet());
  EXPECT_EQ(provider().dereg_mr(mr), 0);
  munmap(page, 4096);
}

TEST_F(Async, ASharedQueueWarnsOnceAtItsLimit) {
  EndOptions options;
  options.shared_queue = true;
  pair_of(IBV_QPT_RC, options);
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(b_->post_receive(i, 0, 64), 0);
  ibv_srq_attr limit{0, 0, 3};
  ASSERT_EQ(provider().modify_srq(b_->srq, &limit, IBV_SRQ_LIMIT), 0);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Request(IBV_WR_SEND, *a_, 0, 8).post(*a_), 0);
  b_->wait(3);
  const ibv_async_event event = next();
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, b_->srq);
  EXPECT_EQ(b_->srq->events_completed, 1u);
  EXPECT_TRUE(quiet());
  ibv_srq_attr now{};
  ASSERT_EQ(provider().query_srq(b_->srq, &now), 0);
  EXPECT_EQ(now.srq_limit, 0u) << "disarmed";
  a_->wait(3);
}

TEST_F(Async, TheLastRequestOfASharedQueueIsReported) {
  EndOptions options;
  options.shared_queue = true;
  pair_of(IBV_QPT_RC, options);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(provider().modify_qp(b_->qp, &attr, IBV_QP_STATE), 0);
  const ibv_async_event event = next();
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(event.element.qp, b_->qp);
}

TEST_F(Async, AnOverrunQueueIsInErrorForGood) {
  EndOptions options;
  options.cq_depth = 2;
  pair_of(IBV_QPT_RC, options);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(Request(IBV_WR_RDMA_WRITE, *a_, 0, 8).to(*b_).post(*a_), 0);
  // The queue pair that completed into it fails too: which of the two is told first is open.
  const ibv_async_event events[] = {next(), next()};
  const auto& of_cq = events[events[0].event_type == IBV_EVENT_CQ_ERR ? 0 : 1];
  const auto& of_qp = events[events[0].event_type == IBV_EVENT_CQ_ERR ? 1 : 0];
  EXPECT_EQ(of_cq.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(of_cq.element.cq, a_->cq);
  EXPECT_EQ(of_qp.event_type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(of_qp.element.qp, a_->qp);
  EXPECT_EQ(a_->cq->async_events_completed, 1u);
  EXPECT_EQ(a_->qp->events_completed, 1u);
  EXPECT_TRUE(quiet()) << "each of them once";
  ibv_wc wc{};
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ibv_poll_cq(a_->cq, 1, &wc), 1);
  EXPECT_EQ(ibv_poll_cq(a_->cq, 1, &wc), -1);
  EXPECT_EQ(a_->state(), IBV_QPS_ERR);
}

TEST_F(Async, DestroyingWaitsForAcknowledgements) {
  pair_of(IBV_QPT_RC);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  ASSERT_EQ(provider().modify_qp(a_->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  pollfd entry{context()->async_fd, POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 20000), 1);
  ibv_async_event event{};
  ASSERT_EQ(provider().get_async_event(context(), &event), 0);
  std::atomic<bool> acknowledged{false};
  ibv_qp* qp = std::exchange(a_->qp, nullptr);
  std::thread destroyer([&] {
    EXPECT_EQ(provider().destroy_qp(qp), 0);
    EXPECT_TRUE(acknowledged) << "the queue pair went away under an event";
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  acknowledged = true;
  provider().ack_async_event(&event);
  destroyer.join();
}

TEST_F(Async, EventsNobodyFetchedGoWithTheirObject) {
  pair_of(IBV_QPT_RC);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  ASSERT_EQ(provider().modify_qp(a_->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  pollfd entry{context()->async_fd, POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 20000), 1);
  ASSERT_EQ(provider().destroy_qp(std::exchange(a_->qp, nullptr)), 0);
  EXPECT_TRUE(quiet());
}

TEST_F(Async, QueuesGrowAndShrinkAroundWhatWaits) {
  EndOptions options;
  options.cq_depth = 3;
  pair_of(IBV_QPT_RC, options);
  EXPECT_EQ(provider().resize_cq(a_->cq, 1), 0);
  EXPECT_GE(a_->cq->cqe, 1);
  EXPECT_EQ(provider().resize_cq(a_->cq, 7), 0);
  EXPECT_GE(a_->cq->cqe, 7);
  for (std::uint64_t i = 0; i < 6; ++i)
    ASSERT_EQ(Request(IBV_WR_RDMA_WRITE, *a_, 0, 8).to(*b_).id(i).post(*a_), 0);
  EXPECT_EQ(a_->wait()[0].wr_id, 0u);
  // The last write has landed when a READ behind it has been answered; six completions wait.
  ASSERT_EQ(Request(IBV_WR_RDMA_READ, *a_, 0, 8).to(*b_).id(6).post(*a_), 0);
  ibv_wc wc{};
  EXPECT_EQ(provider().resize_cq(a_->cq, 0), EINVAL);
  EXPECT_EQ(provider().resize_cq(a_->cq, (1 << 20) + 1), EINVAL);
  const auto rest = a_->wait(6);
  for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(rest[i].wr_id, i + 1);
  ibv_cq stranger{};
  EXPECT_EQ(provider().resize_cq(&stranger, 8), EINVAL);
  EXPECT_EQ(ibv_poll_cq(a_->cq, 1, &wc), 0);
}

TEST_F(Async, AQueueDoesNotShrinkBelowWhatWaits) {
  EndOptions options;
  options.cq_depth = 7;
  pair_of(IBV_QPT_RC, options);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  for (std::uint64_t i = 0; i < 6; ++i) ASSERT_EQ(a_->post_receive(i, 0, 8), 0);
  ASSERT_EQ(provider().modify_qp(a_->qp, &attr, IBV_QP_STATE), 0);  // six are flushed
  EXPECT_EQ(provider().resize_cq(a_->cq, 5), EINVAL);
  EXPECT_EQ(a_->cq->cqe, 7);
  EXPECT_EQ(provider().resize_cq(a_->cq, 6), 0);
  const auto flushed = a_->wait(6);
  for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(flushed[i].wr_id, i);
}

}  // namespace
}  // namespace beeline::verbs::soft
