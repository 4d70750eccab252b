// Every operation over every type of queue pair that has it, and what its completion says.
#include <arpa/inet.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "verbs/soft/testing/kit.h"

namespace beeline::verbs::soft {
namespace {

class Operations : public SoftVerbs {
 protected:
  bool arrived(std::size_t at, std::size_t bytes, std::size_t from = 0) const {
    return std::memcmp(b_->buffer.data() + at, a_->buffer.data() + from, bytes) == 0;
  }
  static std::size_t front_of(ibv_qp_type type) { return type == IBV_QPT_UD ? grh_bytes : 0; }
};

constexpr ibv_qp_type all_types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};

TEST_F(Operations, SendArrivesWithItsImmediate) {
  for (const ibv_qp_type type : all_types)
    for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM})
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{67}, std::size_t{200}}) {
        SCOPED_TRACE(testing::Message()
                     << "type " << type << ", opcode " << opcode << ", " << bytes << " bytes");
        pair_of(type);
        const std::size_t front = front_of(type);
        ASSERT_EQ(b_->post_receive(5, 128, front + bytes), 0);
        Request request(opcode, *a_, 0, bytes);
        request.wr.imm_data = htonl(0xABCD0123);
        ASSERT_EQ(request.id(9).post(*a_), 0);
        const ibv_wc sent = a_->wait()[0], received = b_->wait()[0];
        EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
        EXPECT_EQ(sent.opcode, IBV_WC_SEND);
        EXPECT_EQ(sent.wr_id, 9u);
        EXPECT_EQ(sent.qp_num, a_->qp->qp_num);
        EXPECT_EQ(received.status, IBV_WC_SUCCESS);
        EXPECT_EQ(received.opcode, IBV_WC_RECV);
        EXPECT_EQ(received.wr_id, 5u);
        EXPECT_EQ(received.qp_num, b_->qp->qp_num);
        EXPECT_EQ(received.byte_len, front + bytes);
        EXPECT_EQ(received.vendor_err, 0u);
        EXPECT_EQ(received.pkey_index + received.slid + received.dlid_path_bits, 0);
        EXPECT_EQ(received.sl, type == IBV_QPT_UD ? 8 + 2 : 0) << "IPv4 under UDP";
        const unsigned immediate = opcode == IBV_WR_SEND_WITH_IMM ? unsigned{IBV_WC_WITH_IMM} : 0;
        const unsigned grh = type == IBV_QPT_UD ? unsigned{IBV_WC_GRH} : 0;
        EXPECT_EQ(received.wc_flags, immediate | grh);
        if (immediate != 0) {
          EXPECT_EQ(received.imm_data, htonl(0xABCD0123));
        }
        if (type == IBV_QPT_UD) {
          EXPECT_EQ(received.src_qp, a_->qp->qp_num);
        }
        EXPECT_TRUE(arrived(128 + front, bytes));
      }
}

TEST_F(Operations, InlineDataIsCopiedAtOnce) {
  for (const ibv_qp_type type : all_types) {
    SCOPED_TRACE(type);
    pair_of(type);
    const std::size_t front = front_of(type);
    ASSERT_EQ(b_->post_receive(1, 0, front + 64), 0);
    std::byte unregistered[64];
    std::memset(unregistered, 0x5A, sizeof unregistered);
    Request request(IBV_WR_SEND, *a_, 0, 64);
    request.sge = {reinterpret_cast<std::uint64_t>(unregistered), 64, 0};
    ASSERT_EQ(request.flags(IBV_SEND_INLINE).post(*a_), 0);
    std::memset(unregistered, 0, sizeof unregistered);
    EXPECT_EQ(a_->wait()[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(b_->wait()[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(b_->buffer[front + 63], std::byte{0x5A});
    Request too_long(IBV_WR_SEND, *a_, 0, 129);
    EXPECT_EQ(too_long.flags(IBV_SEND_INLINE).post(*a_), EINVAL);
  }
}

TEST_F(Operations, SeveralPiecesAreOneMessage) {
  for (const ibv_qp_type type : all_types) {
    SCOPED_TRACE(type);
    pair_of(type);
    const std::size_t front = front_of(type);
    ibv_sge to[] = {b_->sge(0, front + 10), b_->sge(1000, 40), b_->sge(2000, 50)};
    ibv_recv_wr receive{};
    receive.sg_list = to;
    receive.num_sge = 3;
    ibv_recv_wr* bad_receive = nullptr;
    ASSERT_EQ(ibv_post_recv(b_->qp, &receive, &bad_receive), 0);
    ibv_sge from[] = {a_->sge(0, 33), a_->sge(33, 0), a_->sge(33, 67)};
    Request request(IBV_WR_SEND, *a_, 0, 0);
    request.wr.sg_list = from;
    request.wr.num_sge = 3;
    ASSERT_EQ(request.post(*a_), 0);
    EXPECT_EQ(a_->wait()[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(b_->wait()[0].byte_len, front + 100);
    EXPECT_TRUE(arrived(front, 10));
    EXPECT_TRUE(arrived(1000, 40, 10));
    EXPECT_TRUE(arrived(2000, 50, 50));
  }
}

TEST_F(Operations, WriteAndWriteWithImmediate) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    SCOPED_TRACE(type);
    pair_of(type);
    ASSERT_EQ(Request(IBV_WR_RDMA_WRITE, *a_, 0, 10000).to(*b_, 500).post(*a_), 0);
    EXPECT_EQ(a_->wait()[0].opcode, IBV_WC_RDMA_WRITE);
    ASSERT_EQ(b_->post_receive(3, 0, 0), 0);
    Request with_immediate(IBV_WR_RDMA_WRITE_WITH_IMM, *a_, 0, 3000);
    with_immediate.wr.imm_data = htonl(77);
    ASSERT_EQ(with_immediate.to(*b_, 20000).post(*a_), 0);
    EXPECT_EQ(a_->wait()[0].status, IBV_WC_SUCCESS);
    const ibv_wc received = b_->wait()[0];
    EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(received.byte_len, 3000u);
    EXPECT_EQ(received.wc_flags, unsigned{IBV_WC_WITH_IMM});
    EXPECT_EQ(received.imm_data, htonl(77));
    EXPECT_TRUE(arrived(500, 10000));
    EXPECT_TRUE(arrived(20000, 3000));
  }
}

TEST_F(Operations, ReadFetches) {
  pair_of(IBV_QPT_RC);
  ASSERT_EQ(Request(IBV_WR_RDMA_READ, *b_, 100, 9000).to(*a_, 50).post(*b_), 0);
  const ibv_wc wc = b_->wait()[0];
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(wc.byte_len, 9000u);
  EXPECT_TRUE(arrived(100, 9000, 50));
}

TEST_F(Operations, AtomicsReturnWhatWasThere) {
  pair_of(IBV_QPT_RC);
  b_->word() = 40;
  ASSERT_EQ(Request(IBV_WR_ATOMIC_FETCH_AND_ADD, *a_, 8, 8).atomic(*b_, 2).post(*a_), 0);
  ibv_wc wc = a_->wait()[0];
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(wc.byte_len, 8u);
  EXPECT_EQ(a_->word(8), 40u);
  EXPECT_EQ(b_->word(), 42u);
  ASSERT_EQ(Request(IBV_WR_ATOMIC_CMP_AND_SWP, *a_, 8, 8).atomic(*b_, 41, 7).post(*a_), 0);
  EXPECT_EQ(a_->wait()[0].opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(a_->word(8), 42u);
  EXPECT_EQ(b_->word(), 42u) << "not what was compared";
  ASSERT_EQ(Request(IBV_WR_ATOMIC_CMP_AND_SWP, *a_, 8, 8).atomic(*b_, 42, 7).post(*a_), 0);
  EXPECT_EQ(a_->wait()[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(b_->word(), 7u);
}

TEST_F(Operations, EachTypeRefusesWhatItLacks) {
  struct Case {
    ibv_qp_type type;
    ibv_wr_opcode opcode;
  };
  const Case lacking[] = {
      {IBV_QPT_UC, IBV_WR_RDMA_READ},
      {IBV_QPT_UC, IBV_WR_ATOMIC_CMP_AND_SWP},
      {IBV_QPT_UC, IBV_WR_ATOMIC_FETCH_AND_ADD},
      {IBV_QPT_UD, IBV_WR_RDMA_READ},
      {IBV_QPT_UD, IBV_WR_RDMA_WRITE},
      {IBV_QPT_UD, IBV_WR_RDMA_WRITE_WITH_IMM},
      {IBV_QPT_UD, IBV_WR_ATOMIC_CMP_AND_SWP},
      {IBV_QPT_UD, IBV_WR_ATOMIC_FETCH_AND_ADD},
      {IBV_QPT_UD, IBV_WR_SEND_WITH_INV},
      {IBV_QPT_UD, IBV_WR_LOCAL_INV},
      {IBV_QPT_UD, IBV_WR_BIND_MW},
      {IBV_QPT_UC, IBV_WR_SEND_WITH_INV},
      {IBV_QPT_UC, IBV_WR_LOCAL_INV},
      {IBV_QPT_UC, IBV_WR_BIND_MW},
      {IBV_QPT_RC, IBV_WR_TSO},
      {IBV_QPT_UD, IBV_WR_TSO},
  };
  for (const Case& each : lacking) {
    SCOPED_TRACE(testing::Message() << "type " << each.type << ", opcode " << each.opcode);
    pair_of(each.type);
    EXPECT_NE(Request(each.opcode, *a_, 0, 8).to(*b_).post(*a_), 0);
    ASSERT_EQ(b_->post_receive(1, 0, grh_bytes + 8), 0);
    ASSERT_EQ(Request(IBV_WR_SEND, *a_, 0, 8).post(*a_), 0) << "and nothing is spoilt";
    EXPECT_EQ(a_->wait()[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(b_->wait()[0].status, IBV_WC_SUCCESS);
  }
}

TEST_F(Operations, UnknownFlagsAreRefused) {
  pair_of(IBV_QPT_RC);
  EXPECT_EQ(Request(IBV_WR_SEND, *a_, 0, 8).flags(IBV_SEND_IP_CSUM).post(*a_), EINVAL);
  EXPECT_EQ(Request(IBV_WR_SEND, *a_, 0, 8).flags(1u << 20).post(*a_), EINVAL);
}

TEST_F(Operations, OnlySignalledRequestsComplete) {
  for (const ibv_qp_type type : all_types) {
    SCOPED_TRACE(type);
    EndOptions options;
    options.signal_all = false;
    pair_of(type, options);
    for (std::uint64_t i = 0; i < 8; ++i) {
      ASSERT_EQ(b_->post_receive(i, 0, 256), 0);
      Request request(IBV_WR_SEND, *a_, 0, 16);
      if (i == 7) request.flags(IBV_SEND_SIGNALED);
      ASSERT_EQ(request.id(i).post(*a_), 0);
    }
    EXPECT_EQ(a_->wait()[0].wr_id, 7u);
    b_->wait(8);
    ibv_wc wc{};
    EXPECT_EQ(ibv_poll_cq(a_->cq, 1, &wc), 0);
  }
}

TEST_F(Operations, AListStopsAtTheFirstBadRequest) {
  pair_of(IBV_QPT_RC);
  Request first(IBV_WR_RDMA_WRITE, *a_, 0, 8), second(IBV_WR_RDMA_WRITE, *a_, 0, 8),
      third(IBV_WR_RDMA_WRITE, *a_, 0, 8);
  for (Request* request : {&first, &second, &third}) request->to(*b_);
  first.wr.next = &second.wr;
  second.wr.next = &third.wr;
  second.wr.num_sge = 1000;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(a_->qp, &first.wr, &bad), EINVAL);
  EXPECT_EQ(bad, &second.wr);
  EXPECT_EQ(a_->wait()[0].status, IBV_WC_SUCCESS);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(a_->cq, 1, &wc), 0);
}

TEST_F(Operations, QueuesHoldWhatWasGrantedAndNoMore) {
  for (const ibv_qp_type type : all_types) {
    SCOPED_TRACE(type);
    EndOptions options;
    options.cap = {4, 4, 1, 1, 0};
    pair_of(type, options);
    for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(b_->post_receive(i, 0, 64), 0);
    EXPECT_EQ(b_->post_receive(4, 0, 64), ENOMEM);
    ibv_sge pieces[] = {b_->sge(0, 8), b_->sge(8, 8)};
    ibv_recv_wr wide{};
    wide.sg_list = pieces;
    wide.num_sge = 2;
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(b_->qp, &wide, &bad), EINVAL) << "more pieces than asked for";
  }
}

TEST_F(Operations, SharedQueuesFeedSeveralQueuePairs) {
  for (const ibv_qp_type type : all_types) {
    SCOPED_TRACE(type);
    EndOptions options;
    options.type = type;
    options.shared_queue = true;
    pair_of(type, options);
    // A second queue pair on b's shared queue.
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = b_->cq;
    attr.srq = b_->srq;
    attr.cap = {4, 100, 1, 100, 0};
    attr.qp_type = type;
    ibv_qp* second = provider().create_qp(b_->pd, &attr);
    ASSERT_NE(second, nullptr) << provider().why();
    EXPECT_EQ(attr.cap.max_recv_wr, 0u) << "not its own";
    EXPECT_EQ(second->srq, b_->srq);
    ibv_sge piece = b_->sge(0, 8);
    ibv_recv_wr receive{};
    receive.sg_list = &piece;
    receive.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(second, &receive, &bad), EINVAL) << "has no receive queue of its own";
    ASSERT_EQ(b_->post_receive(1, 0, 256), 0);
    ASSERT_EQ(b_->post_receive(2, 256, 256), 0);

    auto c = make_end(options);
    std::swap(second, b_->qp);
    advance(*c, *b_, IBV_QPS_RTS);
    advance(*b_, *c, IBV_QPS_RTS);
    c->peer = b_.get();
    ibv_ah_attr to = address_of_this_host();
    c->ah = provider().create_ah(c->pd, &to);
    ASSERT_EQ(Request(IBV_WR_SEND, *c, 0, 100).post(*c), 0);
    const ibv_wc to_second = b_->wait()[0];
    EXPECT_EQ(to_second.status, IBV_WC_SUCCESS);
    EXPECT_EQ(to_second.wr_id, 1u);
    EXPECT_EQ(to_second.qp_num, b_->qp->qp_num);
    std::swap(second, b_->qp);
    ASSERT_EQ(Request(IBV_WR_SEND, *a_, 0, 100).post(*a_), 0);
    const ibv_wc to_first = b_->wait()[0];
    EXPECT_EQ(to_first.wr_id, 2u);
    EXPECT_EQ(to_first.qp_num, b_->qp->qp_num);
    EXPECT_EQ(provider().destroy_qp(second), 0);
  }
}

TEST_F(Operations, SharedQueuesAreAskedAndArmed) {
  ibv_pd* pd = provider().alloc_pd(context());
  ibv_srq_init_attr attr{this, {16, 2, 0}};
  ibv_srq* srq = provider().create_srq(pd, &attr);
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(srq->context, context());
  EXPECT_EQ(srq->srq_context, this);
  EXPECT_EQ(srq->pd, pd);
  ibv_srq_attr now{};
  ASSERT_EQ(provider().query_srq(srq, &now), 0);
  EXPECT_GE(now.max_wr, 16u);
  EXPECT_GE(now.max_sge, 2u);
  EXPECT_EQ(now.srq_limit, 0u);
  now.srq_limit = 5;
  EXPECT_EQ(provider().modify_srq(srq, &now, IBV_SRQ_LIMIT), 0);
  ASSERT_EQ(provider().query_srq(srq, &now), 0);
  EXPECT_EQ(now.srq_limit, 5u);
  now.srq_limit = 17;
  EXPECT_EQ(provider().modify_srq(srq, &now, IBV_SRQ_LIMIT), EINVAL) << "more than it holds";
  EXPECT_EQ(provider().modify_srq(srq, &now, IBV_SRQ_MAX_WR), EOPNOTSUPP);
  EXPECT_EQ(provider().modify_srq(srq, &now, 1 << 5), EINVAL);
  std::uint32_t number = 0;
  EXPECT_EQ(ibv_get_srq_num(srq, &number), EOPNOTSUPP) << "only XRC's have numbers";
  EXPECT_EQ(provider().destroy_srq(srq), 0);
  EXPECT_EQ(provider().dealloc_pd(pd), 0);
}

TEST_F(Operations, ADrainedQueueTakesRequestsAndSendsThemLater) {
  pair_of(IBV_QPT_RC);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  ASSERT_EQ(provider().modify_qp(a_->qp, &attr, IBV_QP_STATE), 0);
  ASSERT_EQ(b_->post_receive(1, 0, 64), 0);
  ASSERT_EQ(Request(IBV_WR_SEND, *a_, 0, 64).post(*a_), 0);
  ibv_wc wc{};
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ibv_poll_cq(b_->cq, 1, &wc), 0);
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(provider().modify_qp(a_->qp, &attr, IBV_QP_STATE), 0);
  EXPECT_EQ(a_->wait()[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(b_->wait()[0].status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace beeline::verbs::soft
