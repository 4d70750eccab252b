// ibv_wr_*, per operation and type.
#include <arpa/inet.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "verbs/soft/testing/kit.h"

namespace beeline::verbs::soft {
namespace {

constexpr std::uint64_t sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr std::uint64_t writes = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
constexpr std::uint64_t windows =
    IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;
constexpr std::uint64_t of_rc = sends | writes | windows | IBV_QP_EX_WITH_RDMA_READ |
                                IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

std::uint64_t operations_of(ibv_qp_type type) {
  return type == IBV_QPT_RC ? of_rc : type == IBV_QPT_UC ? sends | writes : sends;
}

class WrApi : public SoftVerbs {
 protected:
  void built_pair(ibv_qp_type type) {
    EndOptions options;
    options.send_operations = operations_of(type);
    options.signal_all = false;
    pair_of(type, options);
    qp_ = provider().qp_to_qp_ex(a_->qp);
    ASSERT_NE(qp_, nullptr);
    ASSERT_EQ(&qp_->qp_base, a_->qp);
    qp_->wr_id = 11;
    qp_->wr_flags = IBV_SEND_SIGNALED;
  }
  void set_data(std::size_t offset, std::size_t bytes) {
    ibv_wr_set_sge(qp_, a_->mr->lkey, a_->address(offset), static_cast<std::uint32_t>(bytes));
  }
  void set_address() {
    if (a_->ah != nullptr) ibv_wr_set_ud_addr(qp_, a_->ah, b_->qp->qp_num, qkey);
  }
  ibv_wc completes() {
    EXPECT_EQ(ibv_wr_complete(qp_), 0);
    const ibv_wc wc = a_->wait()[0];
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, 11u);
    return wc;
  }
  bool nothing_happened() {
    ibv_wc wc{};
    return ibv_poll_cq(a_->cq, 1, &wc) == 0;
  }
  ibv_qp_ex* qp_ = nullptr;
};

TEST_F(WrApi, OnlyWhereItWasAskedFor) {
  auto plain = make_end();
  EXPECT_EQ(provider().qp_to_qp_ex(plain->qp), nullptr);
}

TEST_F(WrApi, WhatATypeLacksIsRefusedAtCreation) {
  auto end = make_end();
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD})
    for (int bit = 0; bit < 64; ++bit) {
      SCOPED_TRACE(testing::Message() << "type " << type << ", bit " << bit);
      ibv_qp_init_attr_ex attr{};
      attr.send_cq = attr.recv_cq = end->cq;
      attr.cap = {1, 1, 1, 1, 0};
      attr.qp_type = type;
      attr.pd = end->pd;
      attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      attr.send_ops_flags = std::uint64_t{1} << bit;
      errno = 0;
      ibv_qp* qp = verbs_get_ctx(context())->create_qp_ex(context(), &attr);
      const bool offered = (operations_of(type) & attr.send_ops_flags) != 0;
      EXPECT_EQ(qp != nullptr, offered);
      if (!offered) {
        EXPECT_EQ(errno, EOPNOTSUPP);
      }
      if (qp != nullptr) {
        EXPECT_EQ(provider().destroy_qp(qp), 0);
      }
    }
}

TEST_F(WrApi, WhatElseCanBeAskedOfAQueuePair) {
  auto end = make_end();
  const auto attempt = [&](std::uint32_t mask, auto change) {
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = end->cq;
    attr.cap = {1, 1, 1, 1, 0};
    attr.qp_type = IBV_QPT_UD;
    attr.pd = end->pd;
    attr.comp_mask = mask;
    change(attr);
    errno = 0;
    ibv_qp* qp = verbs_get_ctx(context())->create_qp_ex(context(), &attr);
    return qp == nullptr ? errno : provider().destroy_qp(qp);
  };
  const auto as_it_is = [](ibv_qp_init_attr_ex&) {};
  constexpr std::uint32_t pd = IBV_QP_INIT_ATTR_PD;
  EXPECT_EQ(attempt(pd, as_it_is), 0);
  EXPECT_EQ(attempt(0, as_it_is), EINVAL) << "without a domain";
  EXPECT_EQ(attempt(pd | IBV_QP_INIT_ATTR_CREATE_FLAGS, as_it_is), 0);
  EXPECT_EQ(attempt(pd | IBV_QP_INIT_ATTR_CREATE_FLAGS,
                    [](auto& attr) { attr.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB; }),
            EOPNOTSUPP);
  EXPECT_EQ(attempt(pd | IBV_QP_INIT_ATTR_MAX_TSO_HEADER, [](auto& attr) { attr.max_tso_header = 64; }),
            EOPNOTSUPP);
  EXPECT_EQ(attempt(pd | IBV_QP_INIT_ATTR_XRCD, as_it_is), EOPNOTSUPP);
  EXPECT_EQ(attempt(pd | IBV_QP_INIT_ATTR_IND_TABLE, as_it_is), EOPNOTSUPP);
  EXPECT_EQ(attempt(pd | IBV_QP_INIT_ATTR_RX_HASH, as_it_is), EOPNOTSUPP);
  EXPECT_EQ(attempt(pd | 1u << 20, as_it_is), EOPNOTSUPP);
}

TEST_F(WrApi, Sends) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    SCOPED_TRACE(type);
    built_pair(type);
    const std::size_t front = type == IBV_QPT_UD ? grh_bytes : 0;
    ASSERT_EQ(b_->post_receive(1, 0, 512), 0);
    ASSERT_EQ(b_->post_receive(2, 512, 512), 0);
    ibv_wr_start(qp_);
    ibv_wr_send(qp_);
    set_address();
    set_data(0, 100);
    EXPECT_EQ(completes().opcode, IBV_WC_SEND);
    ibv_wr_start(qp_);
    ibv_wr_send_imm(qp_, htonl(99));
    set_address();
    const ibv_sge pieces[] = {a_->sge(0, 10), a_->sge(10, 90)};
    ibv_wr_set_sge_list(qp_, 2, pieces);
    completes();
    const auto received = b_->wait(2);
    EXPECT_EQ(received[0].byte_len, front + 100);
    EXPECT_EQ(received[1].byte_len, front + 100);
    EXPECT_EQ(received[1].imm_data, htonl(99));
    EXPECT_EQ(std::memcmp(b_->buffer.data() + front, a_->buffer.data(), 100), 0);
    EXPECT_EQ(std::memcmp(b_->buffer.data() + 512 + front, a_->buffer.data(), 100), 0);
  }
}

TEST_F(WrApi, InlineData) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    SCOPED_TRACE(type);
    built_pair(type);
    const std::size_t front = type == IBV_QPT_UD ? grh_bytes : 0;
    ASSERT_EQ(b_->post_receive(1, 0, 512), 0);
    ASSERT_EQ(b_->post_receive(2, 512, 512), 0);
    char text[] = "hello, peer";
    ibv_wr_start(qp_);
    ibv_wr_send(qp_);
    set_address();
    ibv_wr_set_inline_data(qp_, text, sizeof text);
    ibv_wr_send(qp_);
    set_address();
    const ibv_data_buf buffers[] = {{text, 5}, {text + 5, 7}};
    ibv_wr_set_inline_data_list(qp_, 2, buffers);
    std::memset(text, 0, sizeof text);
    ASSERT_EQ(ibv_wr_complete(qp_), 0);
    a_->wait(2);
    b_->wait(2);
    EXPECT_STREQ(reinterpret_cast<const char*>(b_->buffer.data()) + front, "hello, peer");
    EXPECT_STREQ(reinterpret_cast<const char*>(b_->buffer.data()) + 512 + front, "hello, peer");
  }
}

TEST_F(WrApi, OneSidedOperations) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    SCOPED_TRACE(type);
    built_pair(type);
    ibv_wr_start(qp_);
    ibv_wr_rdma_write(qp_, b_->mr->rkey, b_->address(100));
    set_data(0, 64);
    EXPECT_EQ(completes().opcode, IBV_WC_RDMA_WRITE);
    ASSERT_EQ(b_->post_receive(3, 0, 0), 0);
    ibv_wr_start(qp_);
    ibv_wr_rdma_write_imm(qp_, b_->mr->rkey, b_->address(200), htonl(5));
    set_data(0, 64);
    completes();
    EXPECT_EQ(b_->wait()[0].imm_data, htonl(5));
    EXPECT_EQ(std::memcmp(b_->buffer.data() + 100, a_->buffer.data(), 64), 0);
    EXPECT_EQ(std::memcmp(b_->buffer.data() + 200, a_->buffer.data(), 64), 0);
    if (type == IBV_QPT_UC) continue;
    b_->word() = 5;
    ibv_wr_start(qp_);
    ibv_wr_rdma_read(qp_, b_->mr->rkey, b_->address());
    set_data(1000, 8);
    EXPECT_EQ(completes().opcode, IBV_WC_RDMA_READ);
    EXPECT_EQ(a_->word(1000), 5u);
    ibv_wr_start(qp_);
    ibv_wr_atomic_fetch_add(qp_, b_->mr->rkey, b_->address(), 2);
    set_data(1000, 8);
    EXPECT_EQ(completes().opcode, IBV_WC_FETCH_ADD);
    ibv_wr_start(qp_);
    ibv_wr_atomic_cmp_swp(qp_, b_->mr->rkey, b_->address(), 7, 1);
    set_data(1000, 8);
    EXPECT_EQ(completes().opcode, IBV_WC_COMP_SWAP);
    EXPECT_EQ(a_->word(1000), 7u);
    EXPECT_EQ(b_->word(), 1u);
  }
}

TEST_F(WrApi, WindowsAreBoundAndInvalidated) {
  built_pair(IBV_QPT_RC);
  ibv_mw* mw = ibv_alloc_mw(a_->pd, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  const std::uint32_t key = ibv_inc_rkey(mw->rkey);
  const ibv_mw_bind_info info{a_->mr, a_->address(), 64, IBV_ACCESS_REMOTE_WRITE};
  ibv_wr_start(qp_);
  ibv_wr_bind_mw(qp_, mw, key, &info);
  EXPECT_EQ(completes().opcode, IBV_WC_BIND_MW);
  ibv_wr_start(qp_);
  ibv_wr_local_inv(qp_, key);
  EXPECT_EQ(completes().opcode, IBV_WC_LOCAL_INV);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(WrApi, SendWithInvalidate) {
  built_pair(IBV_QPT_RC);
  ibv_mw* mw = ibv_alloc_mw(b_->pd, IBV_MW_TYPE_2);
  ibv_send_wr bind{};
  bind.opcode = IBV_WR_BIND_MW;
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_mw = {mw, ibv_inc_rkey(mw->rkey), {b_->mr, b_->address(), 64, IBV_ACCESS_REMOTE_WRITE}};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(b_->qp, &bind, &bad), 0);
  ASSERT_EQ(b_->wait()[0].status, IBV_WC_SUCCESS);
  ASSERT_EQ(b_->post_receive(1, 512, 64), 0);
  ibv_wr_start(qp_);
  ibv_wr_send_inv(qp_, bind.bind_mw.rkey);
  set_data(0, 8);
  completes();
  const ibv_wc wc = b_->wait()[0];
  EXPECT_EQ(wc.wc_flags, unsigned{IBV_WC_WITH_INV});
  EXPECT_EQ(wc.invalidated_rkey, bind.bind_mw.rkey);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(WrApi, NothingIsPostedBeforeCompleteNorAfterAbort) {
  built_pair(IBV_QPT_RC);
  ibv_wr_start(qp_);
  ibv_wr_rdma_write(qp_, b_->mr->rkey, b_->address());
  set_data(0, 64);
  ibv_wr_abort(qp_);
  ibv_wr_start(qp_);
  EXPECT_EQ(ibv_wr_complete(qp_), 0) << "an empty list is no error";
  EXPECT_TRUE(nothing_happened());
  EXPECT_EQ(b_->buffer[1], std::byte{0});
}

TEST_F(WrApi, TheFirstErrorUndoesTheWholeList) {
  struct Mistake {
    const char* name;
    void (*make)(ibv_qp_ex*, End&);
  };
  const Mistake mistakes[] = {
      {"data without a request",
       [](ibv_qp_ex* qp, End& a) { ibv_wr_set_sge(qp, a.mr->lkey, a.address(), 8); }},
      {"data twice", [](ibv_qp_ex* qp, End& a) { ibv_wr_set_sge(qp, a.mr->lkey, a.address(), 8); }},
      {"too many pieces",
       [](ibv_qp_ex* qp, End& a) {
         ibv_wr_send(qp);
         const std::array<ibv_sge, 5> pieces{a.sge(0, 1), a.sge(0, 1), a.sge(0, 1), a.sge(0, 1), a.sge(0, 1)};
         ibv_wr_set_sge_list(qp, pieces.size(), pieces.data());
       }},
      {"inline too long",
       [](ibv_qp_ex* qp, End& a) {
         ibv_wr_send(qp);
         ibv_wr_set_inline_data(qp, a.buffer.data(), 129);
       }},
      {"inline whose lengths wrap around",
       [](ibv_qp_ex* qp, End& a) {
         ibv_wr_send(qp);
         const ibv_data_buf buffers[] = {{a.buffer.data(), 16}, {a.buffer.data(), SIZE_MAX}};
         ibv_wr_set_inline_data_list(qp, 2, buffers);
       }},
      {"an address on a connection",
       [](ibv_qp_ex* qp, End&) {
         ibv_wr_send(qp);
         ibv_wr_set_ud_addr(qp, nullptr, 1, 1);
       }},
      {"TSO", [](ibv_qp_ex* qp, End&) { ibv_wr_send_tso(qp, nullptr, 0, 0); }},
      {"an atomic write", [](ibv_qp_ex* qp, End&) { ibv_wr_atomic_write(qp, 1, 8, nullptr); }},
      {"XRC", [](ibv_qp_ex* qp, End&) { ibv_wr_set_xrc_srqn(qp, 1); }},
      {"unknown flags",
       [](ibv_qp_ex* qp, End&) {
         qp->wr_flags = 1u << 20;
         ibv_wr_send(qp);
       }},
      {"a stranger's window",
       [](ibv_qp_ex* qp, End&) {
         ibv_mw mw{};
         const ibv_mw_bind_info info{};
         ibv_wr_bind_mw(qp, &mw, 1, &info);
       }},
      {"start within start", [](ibv_qp_ex* qp, End&) { ibv_wr_start(qp); }},
      {"more than the queue holds",
       [](ibv_qp_ex* qp, End&) {
         for (int i = 0; i < 64; ++i) ibv_wr_send(qp);
       }},
  };
  built_pair(IBV_QPT_RC);
  for (const Mistake& mistake : mistakes) {
    SCOPED_TRACE(mistake.name);
    qp_->wr_flags = IBV_SEND_SIGNALED;
    const bool alone = mistake.name == std::string("data without a request");
    ibv_wr_start(qp_);
    if (!alone) {
      ibv_wr_rdma_write(qp_, b_->mr->rkey, b_->address());
      set_data(0, 8);
    }
    mistake.make(qp_, *a_);
    EXPECT_NE(ibv_wr_complete(qp_), 0);
    EXPECT_TRUE(nothing_happened());
  }
  ASSERT_EQ(ibv_wr_complete(qp_), EINVAL) << "without a start";
  ibv_wr_abort(qp_);
  qp_->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_start(qp_);
  ibv_wr_rdma_write(qp_, b_->mr->rkey, b_->address());
  set_data(0, 8);
  completes();
}

TEST_F(WrApi, AListThatDoesNotFitIsNotPostedInPart) {
  built_pair(IBV_QPT_RC);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;  // nothing leaves: 62 of the 64 places stay taken
  ASSERT_EQ(provider().modify_qp(a_->qp, &attr, IBV_QP_STATE), 0);
  for (int i = 0; i < 62; ++i)
    ASSERT_EQ(Request(IBV_WR_RDMA_WRITE, *a_, 0, 8).to(*b_).flags(IBV_SEND_SIGNALED).post(*a_), 0);
  const auto post_three = [&] {
    ibv_wr_start(qp_);
    for (int i = 0; i < 3; ++i) {
      ibv_wr_rdma_write(qp_, b_->mr->rkey, b_->address());
      set_data(0, 8);
    }
    return ibv_wr_complete(qp_);
  };
  EXPECT_EQ(post_three(), ENOMEM);
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(provider().modify_qp(a_->qp, &attr, IBV_QP_STATE), 0);
  a_->wait(62);
  EXPECT_TRUE(nothing_happened());
  EXPECT_EQ(post_three(), 0);
  a_->wait(3);
}

TEST_F(WrApi, AMessageThatIsTooLongUndoesTheList) {
  built_pair(IBV_QPT_UD);
  ibv_wr_start(qp_);
  ibv_wr_send(qp_);
  set_address();
  set_data(0, 8);
  ibv_wr_send(qp_);
  set_address();
  set_data(0, 4097);
  EXPECT_EQ(ibv_wr_complete(qp_), EINVAL);
  EXPECT_TRUE(nothing_happened());
}

TEST_F(WrApi, AnOperationThatWasNotAskedForIsAnError) {
  EndOptions options;
  options.send_operations = IBV_QP_EX_WITH_SEND;
  pair_of(IBV_QPT_RC, options);
  ibv_qp_ex* qp = provider().qp_to_qp_ex(a_->qp);
  ibv_wr_start(qp);
  ibv_wr_rdma_write(qp, b_->mr->rkey, b_->address());
  ibv_wr_set_sge(qp, a_->mr->lkey, a_->address(), 8);
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
}

TEST_F(WrApi, DatagramsNeedAnAddress) {
  built_pair(IBV_QPT_UD);
  ibv_wr_start(qp_);
  ibv_wr_send(qp_);
  set_data(0, 8);
  EXPECT_EQ(ibv_wr_complete(qp_), EINVAL);
}

TEST_F(WrApi, AWrongStateIsAnError) {
  EndOptions options;
  options.send_operations = IBV_QP_EX_WITH_SEND;
  auto end = make_end(options);
  ibv_qp_ex* qp = provider().qp_to_qp_ex(end->qp);
  ibv_wr_start(qp);
  ibv_wr_send(qp);
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
}

TEST_F(WrApi, ThreadsTakeTurns) {
  built_pair(IBV_QPT_RC);
  constexpr int rounds = 20;
  const auto work = [&] {
    for (int i = 0; i < rounds; ++i) {
      ibv_wr_start(qp_);
      qp_->wr_id = 11;
      ibv_wr_rdma_write(qp_, b_->mr->rkey, b_->address());
      set_data(0, 8);
      EXPECT_EQ(ibv_wr_complete(qp_), 0);
    }
  };
  std::thread other(work);
  work();
  other.join();
  for (const ibv_wc& wc : a_->wait(std::size_t{2} * rounds)) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace beeline::verbs::soft
