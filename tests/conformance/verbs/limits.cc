// Limits advertised are limits enforced: what ibv_query_device and ibv_query_port say is possible is, and one
// more is not. How many of each kind a process may have is asked of the card only: on a kernel's device that
// takes long, and others' objects count, too.
#include <algorithm>
#include <cerrno>

#include "kit.h"

namespace conformance {
namespace {

class Limits : public Verbs {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Verbs::SetUp());
    pd_.reset(ibv_alloc_pd(context_.get()));
    cq_.reset(ibv_create_cq(context_.get(), 16, nullptr, nullptr, 0));
    ASSERT_NE(pd_, nullptr);
    ASSERT_NE(cq_, nullptr);
  }

  int queue_pair(const ibv_qp_cap& cap) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq_.get();
    attr.cap = cap;
    attr.qp_type = IBV_QPT_RC;
    errno = 0;
    return QueuePair(ibv_create_qp(pd_.get(), &attr)) == nullptr ? errno : 0;
  }
  int shared_queue(std::uint32_t depth, std::uint32_t pieces) {
    ibv_srq_init_attr attr{};
    attr.attr = {depth, pieces, 0};
    errno = 0;
    return SharedQueue(ibv_create_srq(pd_.get(), &attr)) == nullptr ? errno : 0;
  }
  int completion_queue(int depth) {
    errno = 0;
    return Queue(ibv_create_cq(context_.get(), depth, nullptr, nullptr, 0)) == nullptr ? errno : 0;
  }

  Domain pd_;
  Queue cq_;
};

TEST_F(Limits, OfAQueuePair) {
  const auto depth = static_cast<std::uint32_t>(attributes_.max_qp_wr);
  const auto pieces = static_cast<std::uint32_t>(attributes_.max_sge);
  EXPECT_EQ(queue_pair({depth + 1, 1, 1, 1, 0}), EINVAL);
  EXPECT_EQ(queue_pair({1, depth + 1, 1, 1, 0}), EINVAL);
  EXPECT_EQ(queue_pair({1, 1, pieces, 1, 0}), 0);
  EXPECT_EQ(queue_pair({1, 1, pieces + 1, 1, 0}), EINVAL);
  EXPECT_EQ(queue_pair({1, 1, 1, pieces, 0}), 0);
  EXPECT_EQ(queue_pair({1, 1, 1, pieces + 1, 0}), EINVAL);
}

TEST_F(Limits, OfASharedReceiveQueue) {
  const auto depth = static_cast<std::uint32_t>(attributes_.max_srq_wr);
  const auto pieces = static_cast<std::uint32_t>(attributes_.max_srq_sge);
  EXPECT_EQ(shared_queue(depth, 1), 0);
  EXPECT_EQ(shared_queue(depth + 1, 1), EINVAL);
  EXPECT_EQ(shared_queue(1, pieces), 0);
  EXPECT_EQ(shared_queue(1, pieces + 1), EINVAL);
}

TEST_F(Limits, OfACompletionQueue) {
  EXPECT_EQ(completion_queue(attributes_.max_cqe), 0);
  EXPECT_EQ(completion_queue(attributes_.max_cqe + 1), EINVAL);
  EXPECT_EQ(ibv_resize_cq(cq_.get(), attributes_.max_cqe + 1), EINVAL);
  EXPECT_EQ(ibv_resize_cq(cq_.get(), attributes_.max_cqe), 0);
  const int vectors = context_->num_comp_vectors;
  EXPECT_NE(Queue(ibv_create_cq(context_.get(), 1, nullptr, nullptr, vectors - 1)), nullptr);
  errno = 0;
  EXPECT_EQ(ibv_create_cq(context_.get(), 1, nullptr, nullptr, vectors), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Limits, OfAPortsTables) {
  ibv_gid gid{};
  std::uint16_t key = 0;
  EXPECT_EQ(ibv_query_gid(context_.get(), 1, port_.gid_tbl_len - 1, &gid), 0);
  EXPECT_NE(ibv_query_gid(context_.get(), 1, port_.gid_tbl_len, &gid), 0);
  EXPECT_EQ(ibv_query_pkey(context_.get(), 1, 0, &key), 0);
  EXPECT_EQ(key, 0xFFFF);
  EXPECT_NE(ibv_query_pkey(context_.get(), 1, port_.pkey_tbl_len, &key), 0);
  EXPECT_NE(ibv_query_port(context_.get(), static_cast<std::uint8_t>(attributes_.phys_port_cnt + 1), &port_),
            0);
}

class CardLimits : public Limits {
 protected:
  // Makes as many as are promised, then one more, which is refused with `refusal` whoever asks; with one
  // less, there is room again.
  template <class Owner>
  void fill(int promised, int refusal, const std::function<Owner()>& make) {
    std::vector<Owner> made;
    made.reserve(static_cast<std::size_t>(promised));
    for (int i = 0; i < promised; ++i) {
      made.push_back(make());
      ASSERT_NE(made.back(), nullptr) << i << " of " << promised << ": errno " << errno;
    }
    errno = 0;
    EXPECT_EQ(make(), nullptr) << "one more than " << promised;
    EXPECT_EQ(errno, refusal);
    made.pop_back();
    EXPECT_NE(make(), nullptr) << "room for one again";
  }
};

// A kernel's device may lack the memory for it.
TEST_F(CardLimits, TheDeepestQueues) {
  const auto depth = static_cast<std::uint32_t>(attributes_.max_qp_wr);
  EXPECT_EQ(queue_pair({depth, depth, 1, 1, 0}), 0);
}

TEST_F(CardLimits, HowManyDomains) {
  const int others = 1;  // the fixture's
  fill<Domain>(attributes_.max_pd - others, ENOMEM, [&] { return Domain(ibv_alloc_pd(context_.get())); });
}

TEST_F(CardLimits, HowManyCompletionQueues) {
  const int others = 1;
  fill<Queue>(attributes_.max_cq - others, ENOMEM,
              [&] { return Queue(ibv_create_cq(context_.get(), 1, nullptr, nullptr, 0)); });
}

TEST_F(CardLimits, HowManyRegions) {
  std::byte memory[8]{};
  constexpr int access = IBV_ACCESS_LOCAL_WRITE;
  fill<Region>(attributes_.max_mr, ENOMEM,
               [&] { return Region(ibv_reg_mr(pd_.get(), memory, sizeof memory, access)); });
}

TEST_F(CardLimits, HowManyAddressHandles) {
  ibv_ah_attr address = own_address();
  fill<Address>(attributes_.max_ah, ENOMEM, [&] { return Address(ibv_create_ah(pd_.get(), &address)); });
}

TEST_F(CardLimits, HowManySharedQueues) {
  ibv_srq_init_attr attr{};
  attr.attr = {1, 1, 0};
  fill<SharedQueue>(attributes_.max_srq, ENOMEM,
                    [&] { return SharedQueue(ibv_create_srq(pd_.get(), &attr)); });
}

TEST_F(CardLimits, HowManyWindows) {
  const auto give_back = [](ibv_mw* window) { EXPECT_EQ(ibv_dealloc_mw(window), 0); };
  using Window = std::unique_ptr<ibv_mw, void (*)(ibv_mw*)>;
  fill<Window>(attributes_.max_mw, ENOMEM,
               [&] { return Window(ibv_alloc_mw(pd_.get(), IBV_MW_TYPE_1), give_back); });
}

TEST_F(CardLimits, HowManyQueuePairs) {
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq_.get();
  attr.cap = {1, 1, 1, 1, 0};
  attr.qp_type = IBV_QPT_UD;
  fill<QueuePair>(attributes_.max_qp, ENOMEM, [&] { return QueuePair(ibv_create_qp(pd_.get(), &attr)); });
}

TEST_F(CardLimits, ReadsAndAtomicsOutstanding) {
  for (const int over : {0, 1}) {
    End a = make_end();
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    ASSERT_EQ(ibv_modify_qp(a.qp.get(), &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              0);
    attr.qp_state = IBV_QPS_RTR;
    attr.ah_attr = own_address();
    attr.path_mtu = IBV_MTU_256;
    attr.dest_qp_num = a.qp->qp_num;
    constexpr int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    attr.max_dest_rd_atomic = static_cast<std::uint8_t>(attributes_.max_qp_rd_atom + over);
    EXPECT_EQ(ibv_modify_qp(a.qp.get(), &attr, to_rtr), over == 0 ? 0 : EINVAL);
    attr.max_dest_rd_atomic = 1;
    if (over != 0) {
      ASSERT_EQ(ibv_modify_qp(a.qp.get(), &attr, to_rtr), 0);
    }
    attr.qp_state = IBV_QPS_RTS;
    attr.max_rd_atomic = static_cast<std::uint8_t>(attributes_.max_qp_init_rd_atom + over);
    constexpr int to_rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    EXPECT_EQ(ibv_modify_qp(a.qp.get(), &attr, to_rts), over == 0 ? 0 : EINVAL);
  }
}

// What waits in a queue: as many as it was made for, then ENOMEM (ibv_post_recv(3)).
TEST_F(CardLimits, RequestsInAQueue) {
  EndOptions options;
  options.cap = {3, 5, 1, 1, 0};
  pair_of(IBV_QPT_RC, options);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(a.qp.get(), &attr, IBV_QP_CAP, &init), 0);
  for (std::uint32_t i = 0; i < init.cap.max_recv_wr; ++i) ASSERT_EQ(a.receive(i, 0, 8), 0);
  EXPECT_EQ(a.receive(99, 0, 8), ENOMEM);
  attr.qp_state = IBV_QPS_SQD;  // nothing is sent, so all of it waits
  ASSERT_EQ(ibv_modify_qp(b.qp.get(), &attr, IBV_QP_STATE), 0);
  for (std::uint32_t i = 0; i < init.cap.max_send_wr; ++i) ASSERT_EQ(b.send(IBV_WR_SEND, 0, 8), 0);
  EXPECT_EQ(b.send(IBV_WR_SEND, 0, 8), ENOMEM);
}

TEST_F(CardLimits, PiecesOfARequest) {
  const auto most = static_cast<std::uint32_t>(attributes_.max_sge_rd);
  EndOptions options;
  options.cap.max_send_sge = most;
  pair_of(IBV_QPT_RC, options);
  std::vector<ibv_sge> pieces;
  for (std::uint32_t i = 0; i <= most; ++i) pieces.push_back(b.sge(i * 20, 10));
  const auto read = [&](std::uint32_t count) {
    return b.send(IBV_WR_RDMA_READ, 0, 0, [&](ibv_send_wr& wr) {
      wr.sg_list = pieces.data();
      wr.num_sge = static_cast<int>(count);
      wr.wr.rdma.remote_addr = a.address();
      wr.wr.rdma.rkey = a.mr->rkey;
    });
  };
  EXPECT_EQ(read(most + 1), EINVAL);
  ASSERT_EQ(read(most), 0);
  EXPECT_EQ(b.next().status, IBV_WC_SUCCESS);
  for (std::uint32_t i = 0; i < most; ++i) EXPECT_TRUE(same(a, i * 10, b, i * 20, 10)) << i;
}

TEST_F(CardLimits, MemoryIsLimitedByItsAddressesOnly) {
  EXPECT_EQ(attributes_.max_mr_size, UINT64_MAX);
  std::byte memory[8]{};
  constexpr int access = IBV_ACCESS_LOCAL_WRITE;
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(pd_.get(), memory, SIZE_MAX, access), nullptr)
      << "around the end of the address space";
  EXPECT_EQ(errno, EINVAL);
}

// Of what the card has none of, and of what follows from the rest.
TEST_F(CardLimits, NoOtherNumbersArePromised) {
  const ibv_device_attr& all = attributes_;
  EXPECT_EQ(all.max_res_rd_atom,
            std::min<std::int64_t>(INT32_MAX, std::int64_t{all.max_qp_rd_atom} * all.max_qp));
  EXPECT_EQ(all.max_pkeys, port_.pkey_tbl_len);
  for (const int none : {all.max_ee, all.max_ee_rd_atom, all.max_ee_init_rd_atom, all.max_rdd,
                         all.max_raw_ipv6_qp, all.max_raw_ethy_qp, all.max_mcast_grp, all.max_mcast_qp_attach,
                         all.max_total_mcast_qp_attach, all.max_fmr, all.max_map_per_fmr})
    EXPECT_EQ(none, 0);
}

TEST_F(CardLimits, TheLongestMessage) {
  pair_of(IBV_QPT_RC);
  ASSERT_EQ(port_.max_msg_sz, 1u << 31);
  const auto post = [&](std::uint32_t more) {
    ibv_sge pieces[] = {{a.address(), 1u << 30, a.mr->lkey}, {a.address(), (1u << 30) + more, a.mr->lkey}};
    return a.send(IBV_WR_SEND, 0, 0, [&](ibv_send_wr& wr) {
      wr.sg_list = pieces;
      wr.num_sge = 2;
    });
  };
  EXPECT_EQ(post(1), EINVAL);
  EXPECT_EQ(post(0), 0) << "possible, though these pieces lie outside of their region";
  EXPECT_EQ(a.next().status, IBV_WC_LOC_PROT_ERR);
}

}  // namespace
}  // namespace conformance
