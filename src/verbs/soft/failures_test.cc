// Every status of a work completion where it belongs (ibv_poll_cq(3); IBTA vol. 1, 11.6.2), on both ends.
#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "verbs/soft/testing/kit.h"

namespace beeline::verbs::soft {
namespace {

// A registered page that a program may take away behind the card's back.
class Page {
 public:
  explicit Page(const End& end)
      : end_(end),
        memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        mr_(end.provider->reg_mr(end.pd, memory_, bytes, EndOptions{}.access)) {
    EXPECT_NE(mr_, nullptr);
  }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
  ~Page() {
    EXPECT_EQ(end_.provider->dereg_mr(mr_), 0);
    munmap(memory_, bytes);
  }

  // Nobody else's mapping takes its place.
  void vanish() const { EXPECT_EQ(mprotect(memory_, bytes, PROT_NONE), 0); }
  void source(Request& request) const { request.sge = {address(), 64, mr_->lkey}; }
  void target(Request& request) const {
    request.wr.wr.rdma.remote_addr = address();
    request.wr.wr.rdma.rkey = mr_->rkey;
  }

 private:
  static constexpr std::size_t bytes = 4096;
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(memory_); }

  const End& end_;
  void* memory_;
  ibv_mr* mr_;
};

class Statuses : public SoftVerbs {
 protected:
  ibv_wc_status after(Request& request) {
    EXPECT_EQ(request.post(*a_), 0);
    return a_->wait()[0].status;
  }
};

TEST_F(Statuses, LocalProtection) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    SCOPED_TRACE(type);
    pair_of(type);
    Request request(IBV_WR_SEND, *a_, 0, 8);
    request.sge.lkey ^= 0xFF00;
    EXPECT_EQ(after(request), IBV_WC_LOC_PROT_ERR);
    // An unreliable queue pair only stops sending (IBTA vol. 1, 10.3.1.6).
    EXPECT_EQ(a_->state(), type == IBV_QPT_RC ? IBV_QPS_ERR : IBV_QPS_SQE);
  }
}

TEST_F(Statuses, AnUnreliableQueuePairGoesOnAfterSqe) {
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD}) {
    SCOPED_TRACE(type);
    pair_of(type);
    Request bad(IBV_WR_SEND, *a_, 0, 8);
    bad.sge.lkey ^= 0xFF00;
    EXPECT_EQ(after(bad), IBV_WC_LOC_PROT_ERR);
    Request flushed(IBV_WR_SEND, *a_, 0, 8);
    EXPECT_EQ(after(flushed), IBV_WC_WR_FLUSH_ERR);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.cur_qp_state = IBV_QPS_SQE;
    ASSERT_EQ(provider().modify_qp(a_->qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0) << provider().why();
    ASSERT_EQ(b_->post_receive(1, 0, 64), 0);
    Request good(IBV_WR_SEND, *a_, 0, 8);
    EXPECT_EQ(after(good), IBV_WC_SUCCESS);
    EXPECT_EQ(b_->wait()[0].status, IBV_WC_SUCCESS);
  }
}

TEST_F(Statuses, LocalLengthAtTheReceiver) {
  pair_of(IBV_QPT_RC);
  ASSERT_EQ(b_->post_receive(1, 0, 63), 0);
  Request request(IBV_WR_SEND, *a_, 0, 64);
  EXPECT_EQ(after(request), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(b_->wait()[0].status, IBV_WC_LOC_LEN_ERR);
}

// A datagram is one packet: what does not fit is no request at all, so nothing of it has to complete.
TEST_F(Statuses, ADatagramThatIsTooLongIsRefusedAtOnce) {
  pair_of(IBV_QPT_UD);
  EXPECT_EQ(Request(IBV_WR_SEND, *a_, 0, 4097).post(*a_), EINVAL);
  EXPECT_EQ(a_->state(), IBV_QPS_RTS);
}

TEST_F(Statuses, LocalLengthOfADatagramForASharedQueue) {
  EndOptions options;
  options.shared_queue = true;
  pair_of(IBV_QPT_UD, options);
  ASSERT_EQ(b_->post_receive(1, 0, grh_bytes + 7), 0);
  Request request(IBV_WR_SEND, *a_, 0, 8);
  EXPECT_EQ(after(request), IBV_WC_SUCCESS);
  EXPECT_EQ(b_->wait()[0].status, IBV_WC_LOC_LEN_ERR);
}

// The queue pair may have no READ or atomic outstanding, so it cannot do this one.
TEST_F(Statuses, LocalOperationWithoutRoomForAnswers) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    SCOPED_TRACE(opcode);
    pair_of(IBV_QPT_RC, {}, {.max_rd_atomic = 0});
    Request request(opcode, *a_, 0, 8);
    if (opcode == IBV_WR_RDMA_READ)
      request.to(*b_);
    else
      request.atomic(*b_, 1);
    EXPECT_EQ(after(request), IBV_WC_LOC_QP_OP_ERR);
    EXPECT_EQ(a_->state(), IBV_QPS_ERR);
    EXPECT_EQ(b_->state(), IBV_QPS_RTS) << "nothing was sent";
  }
}

TEST_F(Statuses, LocalOperationOfAnInvalidationThatCannotBe) {
  pair_of(IBV_QPT_RC);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.invalidate_rkey = a_->mr->rkey;  // a region's: only windows are invalidated
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a_->qp, &wr, &bad), 0);
  EXPECT_EQ(a_->wait()[0].status, IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(a_->state(), IBV_QPS_ERR);
}

TEST_F(Statuses, LocalAccessWhereAnImmediateWasAwaited) {
  pair_of(IBV_QPT_RC);
  const Page page(*b_);
  ASSERT_EQ(b_->post_receive(1, 0, 64), 0);
  Request request(IBV_WR_RDMA_WRITE_WITH_IMM, *a_, 0, 8);
  page.target(request);
  page.vanish();
  EXPECT_EQ(after(request), IBV_WC_REM_OP_ERR);
  EXPECT_EQ(b_->wait()[0].status, IBV_WC_LOC_ACCESS_ERR);
  EXPECT_EQ(b_->state(), IBV_QPS_ERR);
}

TEST_F(Statuses, RemoteAccess) {
  struct Case {
    const char* name;
    int region;
    unsigned queue_pair;
    ibv_wr_opcode opcode;
    std::uint32_t spoilt_key;
  };
  constexpr int everything =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  constexpr unsigned all = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  const Case cases[] = {
      {"wrong key", everything, all, IBV_WR_RDMA_WRITE, 0x100},
      {"wrong key", everything, all, IBV_WR_RDMA_READ, 0x100},
      {"wrong key", everything, all, IBV_WR_ATOMIC_FETCH_AND_ADD, 0x100},
      {"region", IBV_ACCESS_LOCAL_WRITE, all, IBV_WR_RDMA_WRITE, 0},
      {"region", IBV_ACCESS_LOCAL_WRITE, all, IBV_WR_RDMA_READ, 0},
      {"region", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, all, IBV_WR_ATOMIC_CMP_AND_SWP, 0},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(testing::Message() << each.name << ", opcode " << each.opcode);
    EndOptions options;
    options.access = each.region;
    ConnectOptions connection;
    connection.access = each.queue_pair;
    pair_of(IBV_QPT_RC, options, connection);
    Request request(each.opcode, *a_, 0, 8);
    if (each.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || each.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
      request.atomic(*b_, 1, 1);
      request.wr.wr.atomic.rkey ^= each.spoilt_key;
    } else {
      request.to(*b_);
      request.wr.wr.rdma.rkey ^= each.spoilt_key;
    }
    EXPECT_EQ(after(request), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(a_->state(), IBV_QPS_ERR);
  }
}

// What the queue pair itself does not let in (IBTA vol. 1, 9.7.4.1.5).
TEST_F(Statuses, RightsOfTheQueuePair) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    SCOPED_TRACE(opcode);
    ConnectOptions connection;
    connection.access = 0;
    pair_of(IBV_QPT_RC, {}, connection);
    Request request(opcode, *a_, 0, 8);
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      request.atomic(*b_, 1);
    else
      request.to(*b_);
    const ibv_wc_status status = after(request);
    EXPECT_TRUE(status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR) << status;
  }
}

TEST_F(Statuses, AnAtomicThatIsNotAlignedIsInvalid) {
  pair_of(IBV_QPT_RC);
  Request request(IBV_WR_ATOMIC_FETCH_AND_ADD, *a_, 0, 8);
  request.atomic(*b_, 1);
  request.wr.wr.atomic.remote_addr += 4;
  EXPECT_EQ(after(request), IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(Statuses, AnAtomicsResultNeedsLocalRights) {
  pair_of(IBV_QPT_RC);
  Request request(IBV_WR_ATOMIC_FETCH_AND_ADD, *a_, 0, 8);
  request.atomic(*b_, 1);
  request.sge.lkey ^= 0x100;
  EXPECT_EQ(after(request), IBV_WC_LOC_PROT_ERR);
}

TEST_F(Statuses, RemoteOperationWhenTheReceiversMemoryIsGone) {
  pair_of(IBV_QPT_RC);
  ASSERT_EQ(b_->post_receive(1, 0, 64), 0);
  ASSERT_EQ(provider().dereg_mr(std::exchange(b_->mr, nullptr)), 0);
  Request request(IBV_WR_SEND, *a_, 0, 64);
  EXPECT_EQ(after(request), IBV_WC_REM_OP_ERR);
  EXPECT_EQ(b_->wait()[0].status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(Statuses, RetriesExceeded) {
  pair_of(IBV_QPT_RC, {}, {.timeout = 8, .retry_count = 2});
  ASSERT_EQ(provider().destroy_qp(std::exchange(b_->qp, nullptr)), 0);
  Request request(IBV_WR_SEND, *a_, 0, 8);
  EXPECT_EQ(after(request), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Statuses, ReceiverNotReadyTooOften) {
  pair_of(IBV_QPT_RC, {}, {.rnr_retry = 1, .min_rnr_timer = 1});
  Request request(IBV_WR_SEND, *a_, 0, 8);
  EXPECT_EQ(after(request), IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(Statuses, FlushedBehindAnError) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    SCOPED_TRACE(type);
    pair_of(type);
    for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(a_->post_receive(i, 0, 64), 0);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(provider().modify_qp(a_->qp, &attr, IBV_QP_STATE), 0);
    ASSERT_EQ(Request(IBV_WR_SEND, *a_, 0, 8).id(9).post(*a_), 0);
    ASSERT_EQ(a_->post_receive(3, 0, 64), 0);
    std::uint64_t receives = 0;
    for (const ibv_wc& wc : a_->wait(5)) {
      EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
      EXPECT_EQ(wc.qp_num, a_->qp->qp_num);
      if (wc.wr_id != 9) {
        EXPECT_EQ(wc.wr_id, receives++);
      }
    }
    EXPECT_EQ(receives, 4u);
  }
}

TEST_F(Statuses, DatagramsWithTheWrongKeyAreDropped) {
  pair_of(IBV_QPT_UD);
  ASSERT_EQ(b_->post_receive(1, 0, 64), 0);
  Request wrong(IBV_WR_SEND, *a_, 0, 8);
  wrong.wr.wr.ud.remote_qkey = qkey + 1;
  EXPECT_EQ(after(wrong), IBV_WC_SUCCESS) << "nobody tells a datagram's sender";
  Request right(IBV_WR_SEND, *a_, 8, 8);
  EXPECT_EQ(after(right), IBV_WC_SUCCESS);
  EXPECT_EQ(b_->wait()[0].wr_id, 1u);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(b_->cq, 1, &wc), 0);
}

// A Q_Key with the top bit set stands for the sender's own (IBTA vol. 1, 10.2.5).
TEST_F(Statuses, APrivilegedKeyIsReplacedByTheQueuePairsOwn) {
  pair_of(IBV_QPT_UD);
  ASSERT_EQ(b_->post_receive(1, 0, 64), 0);
  Request request(IBV_WR_SEND, *a_, 0, 8);
  request.wr.wr.ud.remote_qkey = 0x80000000;
  EXPECT_EQ(after(request), IBV_WC_SUCCESS);
  EXPECT_EQ(b_->wait()[0].status, IBV_WC_SUCCESS);
}

TEST_F(Statuses, MemoryThatVanishesIsAnErrorNotACrash) {
  pair_of(IBV_QPT_RC);
  const Page page(*a_);
  Request request(IBV_WR_SEND, *a_, 0, 64);
  page.source(request);
  page.vanish();
  EXPECT_EQ(after(request), IBV_WC_LOC_PROT_ERR);
}

TEST_F(Statuses, RemoteOperationWhenTheTargetVanished) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    SCOPED_TRACE(opcode);
    pair_of(IBV_QPT_RC);
    const Page page(*b_);
    Request request(opcode, *a_, 0, 8);
    page.target(request);
    page.vanish();
    EXPECT_EQ(after(request), IBV_WC_REM_OP_ERR);
    EXPECT_EQ(a_->state(), IBV_QPS_ERR);
  }
}

}  // namespace
}  // namespace beeline::verbs::soft
