// The ways in which the fake fabric can be broken.
#include "verbs/fake/fake_provider.h"

#include <gtest/gtest.h>

#include <bit>

#include "verbs/verbs.h"

namespace beeline::verbs {
namespace {

class FakeFaults : public testing::Test {
 protected:
  struct End {
    Context context;
    ProtectionDomain pd;
    CompletionQueue cq;
    std::uint64_t word = 0;
    MemoryRegion region;
    QueuePair qp;
  };

  FakeFaults() {
    for (End* end : {&a_, &b_}) {
      end->context = open_device(*provider_, "").value();
      end->pd = alloc_pd(*provider_, end->context.get()).value();
      end->cq = create_cq(*provider_, end->context.get(), 8, nullptr).value();
      end->region = register_memory(*provider_, end->pd.get(), &end->word, sizeof end->word,
                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
                        .value();
      end->qp = create_rc_qp(*provider_, end->pd.get(), end->cq.get(), end->cq.get(), {}).value();
    }
    const Gid gid = choose_gid(*provider_, a_.context.get(), 1, std::nullopt)->gid;
    const QpAddress a{.qpn = a_.qp->qp_num, .gid = gid}, b{.qpn = b_.qp->qp_num, .gid = gid};
    EXPECT_TRUE(connect_rc(*provider_, a_.qp.get(), a, b, {}));
    EXPECT_TRUE(connect_rc(*provider_, b_.qp.get(), b, a, {}));
  }

  void write(std::uint64_t value) {
    a_.word = value;
    ibv_sge piece{reinterpret_cast<std::uint64_t>(&a_.word), sizeof a_.word, a_.region->lkey};
    ibv_send_wr wr{};
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(&b_.word);
    wr.wr.rdma.rkey = b_.region->rkey;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(a_.qp.get(), &wr, &bad), 0);
  }
  // The next completion of a, or nothing.
  std::optional<ibv_wc_status> poll() {
    ibv_wc wc{};
    if (ibv_poll_cq(a_.cq.get(), 1, &wc) != 1) return std::nullopt;
    return wc.status;
  }

  std::unique_ptr<FakeProvider> provider_ = make_fake_provider();
  End a_, b_;
};

TEST_F(FakeFaults, QueuePairsAreListedWithTheirPeers) {
  const auto list = provider_->queue_pairs();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].context, a_.context.get());
  EXPECT_EQ(list[0].peer_qpn, b_.qp->qp_num);
  EXPECT_EQ(list[1].peer_qpn, a_.qp->qp_num);
  EXPECT_EQ(list[1].state, IBV_QPS_RTS);
}

TEST_F(FakeFaults, KillingTheTargetExceedsTheRetries) {
  provider_->kill(b_.qp->qp_num);
  write(1);
  EXPECT_EQ(poll(), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(b_.word, 0u);
}

TEST_F(FakeFaults, KillingTheInitiatorFlushes) {
  provider_->set_paused(true);
  write(1);
  EXPECT_EQ(poll(), std::nullopt);
  provider_->kill(a_.qp->qp_num);
  EXPECT_EQ(poll(), IBV_WC_WR_FLUSH_ERR);
  provider_->set_paused(false);
  EXPECT_EQ(b_.word, 0u) << "nothing lands after the error";
}

TEST_F(FakeFaults, TheNextRequestFailsAsAsked) {
  write(1);
  EXPECT_EQ(poll(), IBV_WC_SUCCESS);
  provider_->fail_next(a_.qp->qp_num, IBV_WC_REM_OP_ERR);
  write(2);
  EXPECT_EQ(poll(), IBV_WC_REM_OP_ERR);
  EXPECT_EQ(b_.word, 1u);
  write(3);
  EXPECT_EQ(poll(), IBV_WC_WR_FLUSH_ERR);
}

TEST_F(FakeFaults, ACorruptedMessageIsReportedAsSuccess) {
  provider_->corrupt_next(a_.qp->qp_num);
  write(0);
  EXPECT_EQ(poll(), IBV_WC_SUCCESS);
  EXPECT_EQ(std::popcount(b_.word), 1);
  write(0);
  EXPECT_EQ(poll(), IBV_WC_SUCCESS);
  EXPECT_EQ(b_.word, 0u) << "once";
}

TEST_F(FakeFaults, UnreachableExceedsTheRetries) {
  provider_->set_reachable(b_.qp->qp_num, false);
  write(1);
  EXPECT_EQ(poll(), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(b_.word, 0u);
}

TEST_F(FakeFaults, PausedIsLateNotLost) {
  provider_->set_paused(true);
  write(5);
  EXPECT_EQ(poll(), std::nullopt);
  EXPECT_EQ(b_.word, 0u);
  provider_->set_paused(false);
  EXPECT_EQ(poll(), IBV_WC_SUCCESS);
  EXPECT_EQ(b_.word, 5u);
}

}  // namespace
}  // namespace beeline::verbs
