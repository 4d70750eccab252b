// Completion queues, their channels, shared receive queues, and both extended interfaces.
#include <arpa/inet.h>

#include <cerrno>
#include <set>

#include "kit.h"

namespace conformance {
namespace {

class Queues : public Verbs {
 protected:
  // The channel tells of this end's queue; the event is acknowledged.
  static void await_event(End& end) {
    ASSERT_TRUE(readable(end.channel->fd));
    ibv_cq* told = nullptr;
    void* cookie = nullptr;
    ASSERT_EQ(ibv_get_cq_event(end.channel.get(), &told, &cookie), 0);
    EXPECT_EQ(told, end.cq.get());
    ibv_ack_cq_events(told, 1);
  }
};

TEST_F(Queues, AnArmedOneReportsOnce) {
  pair_of(IBV_QPT_RC);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(b.receive(i, 0, 64), 0);
  ASSERT_EQ(ibv_req_notify_cq(b.cq.get(), 0), 0);
  EXPECT_FALSE(readable(b.channel->fd, 0));
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(a.send(IBV_WR_SEND, 0, 8), 0);
    EXPECT_EQ(b.next().status, IBV_WC_SUCCESS);
  }
  await_event(b);
  EXPECT_FALSE(readable(b.channel->fd, 0));
}

TEST_F(Queues, SolicitedOnlyWaitsForSolicited) {
  pair_of(IBV_QPT_RC);
  for (std::uint64_t i = 0; i < 2; ++i) ASSERT_EQ(b.receive(i, 0, 64), 0);
  ASSERT_EQ(ibv_req_notify_cq(b.cq.get(), 1), 0);
  ASSERT_EQ(a.send(IBV_WR_SEND, 0, 8), 0);
  EXPECT_EQ(b.next().status, IBV_WC_SUCCESS);
  EXPECT_FALSE(readable(b.channel->fd, 0));
  ASSERT_EQ(a.send(IBV_WR_SEND, 0, 8, [](ibv_send_wr& wr) { wr.send_flags |= IBV_SEND_SOLICITED; }), 0);
  await_event(b);
  EXPECT_EQ(b.next().status, IBV_WC_SUCCESS);
}

TEST_F(Queues, TheyGrowAroundWhatWaitsAndDoNotShrinkBelowIt) {
  EndOptions options;
  options.cq_depth = 8;
  pair_of(IBV_QPT_RC, options);
  for (std::uint64_t i = 0; i < 6; ++i) ASSERT_EQ(a.receive(i, 0, 8), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(a.qp.get(), &attr, IBV_QP_STATE), 0);  // six are flushed
  ASSERT_EQ(a.next().wr_id, 0u);
  EXPECT_NE(ibv_resize_cq(a.cq.get(), 0), 0);
  ASSERT_EQ(ibv_resize_cq(a.cq.get(), 100), 0);
  EXPECT_GE(a.cq->cqe, 100);
  for (std::uint64_t i = 1; i < 6; ++i) {
    const ibv_wc wc = a.next();
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.wr_id, i);
  }
  EXPECT_FALSE(a.has_more());
}

TEST_F(Queues, AnExtendedOneShowsEachCompletionsFields) {
  EndOptions options;
  options.make_cq = [](ibv_context* context) -> ibv_cq* {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 16;
    attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    ibv_cq_ex* made = ibv_create_cq_ex(context, &attr);
    return made == nullptr ? nullptr : ibv_cq_ex_to_cq(made);
  };
  pair_of(IBV_QPT_RC, options);
  auto* queue = reinterpret_cast<ibv_cq_ex*>(b.cq.get());
  ibv_poll_cq_attr none{};
  EXPECT_EQ(ibv_start_poll(queue, &none), ENOENT);
  for (std::uint64_t i = 0; i < 2; ++i) ASSERT_EQ(b.receive(70 + i, 0, 64), 0);
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(a.send(IBV_WR_SEND_WITH_IMM, 0, 33, [](ibv_send_wr& wr) { wr.imm_data = htonl(0xABCD); }), 0);
  int got = ENOENT;
  for (int tries = 0; got == ENOENT && tries < 1'000'000; ++tries) got = ibv_start_poll(queue, &none);
  ASSERT_EQ(got, 0);
  for (std::uint64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(queue->status, IBV_WC_SUCCESS);
    EXPECT_EQ(queue->wr_id, 70 + i);
    EXPECT_EQ(ibv_wc_read_opcode(queue), IBV_WC_RECV);
    EXPECT_EQ(ibv_wc_read_byte_len(queue), 33u);
    EXPECT_EQ(ibv_wc_read_qp_num(queue), b.qp->qp_num);
    EXPECT_EQ(ibv_wc_read_wc_flags(queue) & IBV_WC_WITH_IMM, unsigned{IBV_WC_WITH_IMM});
    EXPECT_EQ(ntohl(ibv_wc_read_imm_data(queue)), 0xABCDu);
    if (i == 1) break;
    for (got = ENOENT; got == ENOENT;) got = ibv_next_poll(queue);
    ASSERT_EQ(got, 0);
  }
  EXPECT_EQ(ibv_next_poll(queue), ENOENT);
  ibv_end_poll(queue);
}

TEST_F(Queues, ExtendedQueuePairsPostWholeListsOrNone) {
  EndOptions options;
  options.send_operations =
      IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  pair_of(IBV_QPT_RC, options);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(a.qp.get());
  ASSERT_NE(qp, nullptr);
  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(qp, b.mr->rkey, b.address());
  ibv_wr_set_sge(qp, a.mr->lkey, a.address(), 64);
  ibv_wr_abort(qp);
  ASSERT_EQ(b.receive(9, 0, 64), 0);
  ibv_wr_start(qp);
  qp->wr_flags = IBV_SEND_SIGNALED;
  qp->wr_id = 2;
  ibv_wr_rdma_write(qp, b.mr->rkey, b.address(100));
  ibv_wr_set_sge(qp, a.mr->lkey, a.address(100), 50);
  qp->wr_id = 3;
  qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;  // librxe wants to be told
  ibv_wr_rdma_write_imm(qp, b.mr->rkey, b.address(200), htonl(5));
  ibv_wr_set_inline_data(qp, a.buffer.data() + 200, 20);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  for (const std::uint64_t id : {2u, 3u}) {
    const ibv_wc wc = a.next();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, id);
  }
  EXPECT_FALSE(a.has_more());
  EXPECT_EQ(b.next().wr_id, 9u);
  EXPECT_EQ(b.buffer[0], std::byte{0}) << "what was aborted";
  EXPECT_TRUE(same(a, 100, b, 100, 50));
  EXPECT_TRUE(same(a, 200, b, 200, 20));
}

TEST_F(Queues, ASharedOneServesItsQueuePairs) {
  EndOptions options;
  options.shared_queue = true;
  pair_of(IBV_QPT_RC, options);
  End c = make_end(), second;
  second.pd.reset(ibv_alloc_pd(context_.get()));
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = b.cq.get();
  attr.srq = b.srq.get();
  attr.cap = {4, 0, 1, 0, 0};
  attr.qp_type = IBV_QPT_RC;
  second.qp.reset(ibv_create_qp(b.pd.get(), &attr));
  ASSERT_NE(second.qp, nullptr);
  ASSERT_NO_FATAL_FAILURE(connect(c, second));
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(b.receive(i, i * 64, 64), 0);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(a.send(IBV_WR_SEND, 0, 8), 0);
    ASSERT_EQ(c.send(IBV_WR_SEND, 0, 8), 0);
  }
  std::multiset<std::uint32_t> receivers;
  std::set<std::uint64_t> requests;
  for (int i = 0; i < 4; ++i) {
    const ibv_wc wc = b.next();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    receivers.insert(wc.qp_num);
    requests.insert(wc.wr_id);
  }
  EXPECT_EQ(receivers.count(b.qp->qp_num), 2u);
  EXPECT_EQ(receivers.count(second.qp->qp_num), 2u);
  EXPECT_EQ(requests.size(), 4u) << "each receive once";
}

TEST_F(Queues, ASharedOneWarnsAtItsLimit) {
  EndOptions options;
  options.shared_queue = true;
  pair_of(IBV_QPT_RC, options);
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(b.receive(i, 0, 64), 0);
  ibv_srq_attr limit{0, 0, 3};
  ASSERT_EQ(ibv_modify_srq(b.srq.get(), &limit, IBV_SRQ_LIMIT), 0);
  ibv_srq_attr now{};
  ASSERT_EQ(ibv_query_srq(b.srq.get(), &now), 0);
  EXPECT_EQ(now.srq_limit, 3u);
  EXPECT_GE(now.max_wr, 4u);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(a.send(IBV_WR_SEND, 0, 8), 0);
    EXPECT_EQ(b.next().status, IBV_WC_SUCCESS);
  }
  ASSERT_TRUE(readable(context_->async_fd));
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(context_.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, b.srq.get());
  ibv_ack_async_event(&event);
}

}  // namespace
}  // namespace conformance
