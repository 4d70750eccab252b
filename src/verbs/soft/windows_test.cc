// Memory windows of both types, invalidation from both ends, and regions that change.
#include <cerrno>
#include <utility>
#include <vector>

#include "verbs/soft/testing/kit.h"

namespace beeline::verbs::soft {
namespace {

class Windows : public SoftVerbs {
 protected:
  // A window of b's over part of its buffer, bound over b's queue pair; its key goes to a.
  std::uint32_t bind(ibv_mw* mw, std::size_t offset, std::size_t bytes, unsigned access) {
    const ibv_mw_bind_info info{b_->mr, b_->address(offset), bytes, access};
    if (mw->type == IBV_MW_TYPE_1) {
      ibv_mw_bind request{1, IBV_SEND_SIGNALED, info};
      EXPECT_EQ(ibv_bind_mw(b_->qp, mw, &request), 0);
      last_ = b_->wait()[0];
      return mw->rkey;
    }
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = key_ = ibv_inc_rkey(key_ == 0 ? mw->rkey : key_);
    wr.bind_mw.bind_info = info;
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(b_->qp, &wr, &bad), 0);
    last_ = b_->wait()[0];
    return key_;
  }
  ibv_wc_status write(std::uint32_t rkey, std::uint64_t address, ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE) {
    Request request(opcode, *a_, 0, 8);
    request.wr.wr.rdma = {address, rkey};
    EXPECT_EQ(request.post(*a_), 0);
    return a_->wait()[0].status;
  }
  ibv_mw* window(ibv_mw_type type) {
    ibv_mw* mw = ibv_alloc_mw(b_->pd, type);
    EXPECT_NE(mw, nullptr) << provider().why();
    return mw;
  }

  ibv_wc last_{};
  std::uint32_t key_ = 0;
};

constexpr ibv_mw_type both_types[] = {IBV_MW_TYPE_1, IBV_MW_TYPE_2};

TEST_F(Windows, GiveWhatWasBoundAndNoMore) {
  for (const ibv_mw_type type : both_types) {
    SCOPED_TRACE(type);
    key_ = 0;
    pair_of(IBV_QPT_RC);
    ibv_mw* mw = window(type);
    EXPECT_EQ(mw->context, context());
    EXPECT_EQ(mw->pd, b_->pd);
    EXPECT_EQ(mw->type, type);
    const std::uint32_t key = bind(mw, 1000, 64, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE);
    EXPECT_EQ(last_.status, IBV_WC_SUCCESS);
    EXPECT_EQ(last_.opcode, IBV_WC_BIND_MW);
    EXPECT_EQ(write(key, b_->address(1000)), IBV_WC_SUCCESS);
    EXPECT_EQ(write(key, b_->address(1056)), IBV_WC_SUCCESS);
    EXPECT_EQ(write(key, b_->address(1057)), IBV_WC_REM_ACCESS_ERR);
    a_.reset();
    b_->provider->destroy_qp(std::exchange(b_->qp, nullptr));
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  }
}

TEST_F(Windows, RightsAreThoseOfTheBind) {
  for (const ibv_mw_type type : both_types) {
    SCOPED_TRACE(type);
    key_ = 0;
    pair_of(IBV_QPT_RC);
    ibv_mw* mw = window(type);
    const std::uint32_t key = bind(mw, 0, 64, IBV_ACCESS_REMOTE_READ);
    EXPECT_EQ(write(key, b_->address(), IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
    EXPECT_EQ(write(key, b_->address(), IBV_WR_RDMA_WRITE), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  }
}

TEST_F(Windows, ZeroBasedOnesStartAtZero) {
  pair_of(IBV_QPT_RC);
  ibv_mw* mw = window(IBV_MW_TYPE_2);
  const std::uint32_t key = bind(mw, 512, 64, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED);
  EXPECT_EQ(write(key, 56), IBV_WC_SUCCESS);
  EXPECT_EQ(b_->buffer[512 + 56 + 1], a_->buffer[1]);
  EXPECT_EQ(write(key, 57), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(Windows, Type1IsUnboundByALengthOfZero) {
  pair_of(IBV_QPT_RC);
  ibv_mw* mw = window(IBV_MW_TYPE_1);
  const std::uint32_t key = bind(mw, 0, 64, IBV_ACCESS_REMOTE_WRITE);
  EXPECT_EQ(write(key, b_->address()), IBV_WC_SUCCESS);
  bind(mw, 0, 0, 0);
  EXPECT_EQ(last_.status, IBV_WC_SUCCESS);
  EXPECT_EQ(write(key, b_->address()), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(Windows, Type2IsInvalidatedFromHere) {
  pair_of(IBV_QPT_RC);
  ibv_mw* mw = window(IBV_MW_TYPE_2);
  std::uint32_t key = bind(mw, 0, 64, IBV_ACCESS_REMOTE_WRITE);
  EXPECT_EQ(write(key, b_->address()), IBV_WC_SUCCESS);
  Request invalidate(IBV_WR_LOCAL_INV, *b_, 0, 0);
  invalidate.wr.invalidate_rkey = key;
  ASSERT_EQ(invalidate.post(*b_), 0);
  const ibv_wc wc = b_->wait()[0];
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_LOCAL_INV);
  const std::uint32_t again = bind(mw, 64, 64, IBV_ACCESS_REMOTE_WRITE);
  EXPECT_EQ(last_.status, IBV_WC_SUCCESS);
  EXPECT_EQ(write(again, b_->address(64)), IBV_WC_SUCCESS);
  EXPECT_EQ(write(key, b_->address()), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(Windows, Type2IsInvalidatedFromThere) {
  pair_of(IBV_QPT_RC);
  ibv_mw* mw = window(IBV_MW_TYPE_2);
  const std::uint32_t key = bind(mw, 0, 64, IBV_ACCESS_REMOTE_WRITE);
  ASSERT_EQ(b_->post_receive(4, 1000, 64), 0);
  Request invalidate(IBV_WR_SEND_WITH_INV, *a_, 0, 16);
  invalidate.wr.invalidate_rkey = key;
  ASSERT_EQ(invalidate.post(*a_), 0);
  EXPECT_EQ(a_->wait()[0].status, IBV_WC_SUCCESS);
  const ibv_wc wc = b_->wait()[0];
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.wc_flags, unsigned{IBV_WC_WITH_INV});
  EXPECT_EQ(wc.invalidated_rkey, key);
  EXPECT_EQ(write(key, b_->address()), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(Windows, WhatCannotBeInvalidatedFailsBothEnds) {
  pair_of(IBV_QPT_RC);
  ASSERT_EQ(b_->post_receive(4, 1000, 64), 0);
  Request invalidate(IBV_WR_SEND_WITH_INV, *a_, 0, 16);
  invalidate.wr.invalidate_rkey = b_->mr->rkey;  // a region's
  ASSERT_EQ(invalidate.post(*a_), 0);
  EXPECT_EQ(a_->wait()[0].status, IBV_WC_REM_ACCESS_ERR);
  const ibv_wc wc = b_->wait()[0];
  EXPECT_EQ(wc.wr_id, 4u);
  EXPECT_EQ(wc.status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(Windows, Type2ServesTheQueuePairThatBoundIt) {
  pair_of(IBV_QPT_RC);
  ibv_mw* mw = window(IBV_MW_TYPE_2);
  const std::uint32_t key = bind(mw, 0, 64, IBV_ACCESS_REMOTE_WRITE);
  EXPECT_EQ(write(key, b_->address()), IBV_WC_SUCCESS);
  // Another connection into the same domain.
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = b_->cq;
  attr.cap = {4, 4, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  ibv_qp* other = provider().create_qp(b_->pd, &attr);
  ASSERT_NE(other, nullptr);
  auto stranger = make_end();
  std::swap(other, b_->qp);
  connect(*stranger, *b_);
  std::swap(stranger, a_);
  EXPECT_EQ(write(key, b_->address()), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(provider().destroy_qp(other), 0);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

struct BadBind {
  const char* name;
  void (*spoil)(ibv_mw_bind_info& info, End& end);
};
constexpr BadBind bad_binds[] = {
    {"too long", [](ibv_mw_bind_info& info, End& end) { info.length = end.buffer.size() + 1; }},
    {"too early", [](ibv_mw_bind_info& info, End&) { info.addr -= 1; }},
    {"around the end", [](ibv_mw_bind_info& info, End&) { info.length = UINT64_MAX; }},
};

TEST_F(Windows, ABindThatCannotBeFailsItsCompletion) {
  for (const BadBind& bad : bad_binds) {
    SCOPED_TRACE(bad.name);
    pair_of(IBV_QPT_RC);
    ibv_mw* mw = window(IBV_MW_TYPE_1);
    ibv_mw_bind request{1, IBV_SEND_SIGNALED, {b_->mr, b_->address(), 64, IBV_ACCESS_REMOTE_WRITE}};
    bad.spoil(request.bind_info, *b_);
    ASSERT_EQ(ibv_bind_mw(b_->qp, mw, &request), 0);
    EXPECT_EQ(b_->wait()[0].status, IBV_WC_MW_BIND_ERR);
    EXPECT_EQ(b_->state(), IBV_QPS_ERR);
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  }
  SCOPED_TRACE("a region that allows none");
  EndOptions options;
  options.access = IBV_ACCESS_LOCAL_WRITE;
  pair_of(IBV_QPT_RC, options);
  ibv_mw* mw = window(IBV_MW_TYPE_2);
  bind(mw, 0, 64, IBV_ACCESS_REMOTE_WRITE);
  EXPECT_EQ(last_.status, IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(Windows, WhatIsNoBindIsRefusedAtOnce) {
  pair_of(IBV_QPT_RC);
  ibv_mw* one = window(IBV_MW_TYPE_1);
  ibv_mw* two = window(IBV_MW_TYPE_2);
  ibv_mw_bind request{1, 0, {b_->mr, b_->address(), 64, IBV_ACCESS_REMOTE_WRITE}};
  EXPECT_EQ(ibv_bind_mw(b_->qp, two, &request), EINVAL) << "type 2 is bound by ibv_post_send";
  request.bind_info.mw_access_flags = IBV_ACCESS_ON_DEMAND;
  EXPECT_EQ(ibv_bind_mw(b_->qp, one, &request), EINVAL);
  request.bind_info = {nullptr, b_->address(), 64, 0};
  EXPECT_EQ(ibv_bind_mw(b_->qp, one, &request), EINVAL) << "no region";
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw.mw = one;
  wr.bind_mw.bind_info = {b_->mr, b_->address(), 64, IBV_ACCESS_REMOTE_WRITE};
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(b_->qp, &wr, &bad), EINVAL) << "type 1 is bound by ibv_bind_mw";
  ibv_mw stranger{};
  wr.bind_mw.mw = &stranger;
  EXPECT_EQ(ibv_post_send(b_->qp, &wr, &bad), EINVAL);
  errno = 0;
  EXPECT_EQ(ibv_alloc_mw(b_->pd, static_cast<ibv_mw_type>(3)), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_dealloc_mw(one), 0);
  EXPECT_EQ(ibv_dealloc_mw(two), 0);
}

TEST_F(Windows, ARegionUnderAWindowStays) {
  pair_of(IBV_QPT_RC);
  ibv_mw* mw = window(IBV_MW_TYPE_1);
  bind(mw, 0, 64, IBV_ACCESS_REMOTE_WRITE);
  EXPECT_EQ(provider().dereg_mr(b_->mr), EBUSY);
  EXPECT_EQ(provider().rereg_mr(b_->mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

class Regions : public SoftVerbs {};

TEST_F(Regions, AnyAddressMayStandForTheMemory) {
  pair_of(IBV_QPT_RC);
  constexpr std::uint64_t iova = 0x7000'0000'1000;
  ibv_mr* mr = provider().reg_mr_iova(b_->pd, b_->buffer.data(), 4096, iova,
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, b_->buffer.data());
  EXPECT_EQ(mr->length, 4096u);
  ibv_mr* zero = provider().reg_mr(b_->pd, b_->buffer.data(), 4096,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED);
  ASSERT_NE(zero, nullptr);
  Request request(IBV_WR_RDMA_WRITE, *a_, 8, 8);
  request.wr.wr.rdma = {iova + 100, mr->rkey};
  ASSERT_EQ(request.post(*a_), 0);
  EXPECT_EQ(a_->wait()[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(b_->buffer[100], a_->buffer[8]);
  request.wr.wr.rdma = {200, zero->rkey};
  ASSERT_EQ(request.post(*a_), 0);
  EXPECT_EQ(a_->wait()[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(b_->buffer[200], a_->buffer[8]);
  EXPECT_EQ(provider().dereg_mr(mr), 0);
  EXPECT_EQ(provider().dereg_mr(zero), 0);
}

TEST_F(Regions, BadRightsAreRefused) {
  ibv_pd* pd = provider().alloc_pd(context());
  std::byte memory[64];
  const auto refused = [&](int access) {
    errno = 0;
    ibv_mr* mr = provider().reg_mr(pd, memory, sizeof memory, access);
    if (mr != nullptr) provider().dereg_mr(mr);
    return mr == nullptr ? errno : 0;
  };
  EXPECT_EQ(refused(0), 0);
  EXPECT_EQ(refused(IBV_ACCESS_REMOTE_WRITE), EINVAL);
  EXPECT_EQ(refused(IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
  EXPECT_EQ(refused(IBV_ACCESS_REMOTE_READ), 0);
  EXPECT_EQ(refused(IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
  EXPECT_EQ(refused(1 << 10), EOPNOTSUPP);
  EXPECT_EQ(refused(static_cast<int>(IBV_ACCESS_OPTIONAL_RANGE)), 0) << "hints are dropped";
  EXPECT_EQ(provider().reg_mr(pd, memory, 0, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(provider().dealloc_pd(pd), 0);
}

TEST_F(Regions, ChangeTheirRights) {
  pair_of(IBV_QPT_RC);
  const std::uint32_t rkey = b_->mr->rkey;
  ASSERT_EQ(provider().rereg_mr(b_->mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ),
            0);
  EXPECT_EQ(b_->mr->rkey, rkey);
  ASSERT_EQ(Request(IBV_WR_RDMA_READ, *a_, 0, 8).to(*b_).post(*a_), 0);
  EXPECT_EQ(a_->wait()[0].status, IBV_WC_SUCCESS);
  ASSERT_EQ(Request(IBV_WR_RDMA_WRITE, *a_, 0, 8).to(*b_).post(*a_), 0);
  EXPECT_EQ(a_->wait()[0].status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Regions, ChangeTheirPlace) {
  pair_of(IBV_QPT_RC);
  std::vector<std::byte> elsewhere(4096);
  ASSERT_EQ(provider().rereg_mr(b_->mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, elsewhere.data(),
                                elsewhere.size(), 0),
            0);
  EXPECT_EQ(b_->mr->addr, elsewhere.data());
  EXPECT_EQ(b_->mr->length, elsewhere.size());
  Request request(IBV_WR_RDMA_WRITE, *a_, 8, 8);
  request.wr.wr.rdma = {reinterpret_cast<std::uint64_t>(elsewhere.data()), b_->mr->rkey};
  ASSERT_EQ(request.post(*a_), 0);
  EXPECT_EQ(a_->wait()[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(elsewhere[0], a_->buffer[8]);
  ASSERT_EQ(Request(IBV_WR_RDMA_WRITE, *a_, 0, 8).to(*b_).post(*a_), 0) << "where it was";
  EXPECT_EQ(a_->wait()[0].status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Regions, ChangeTheirDomain) {
  pair_of(IBV_QPT_RC);
  ibv_pd* other = provider().alloc_pd(context());
  ASSERT_EQ(provider().rereg_mr(b_->mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
  EXPECT_EQ(b_->mr->pd, other);
  EXPECT_EQ(provider().dealloc_pd(other), EBUSY);
  ASSERT_EQ(Request(IBV_WR_RDMA_WRITE, *a_, 0, 8).to(*b_).post(*a_), 0);
  EXPECT_EQ(a_->wait()[0].status, IBV_WC_REM_ACCESS_ERR);
  ASSERT_EQ(provider().rereg_mr(b_->mr, IBV_REREG_MR_CHANGE_PD, b_->pd, nullptr, 0, 0), 0);
  EXPECT_EQ(provider().dealloc_pd(other), 0);
}

TEST_F(Regions, BadChangesChangeNothing) {
  auto end = make_end();
  const auto input = [&](int flags, ibv_pd* pd, void* address, std::size_t bytes, int access) {
    errno = 0;
    EXPECT_EQ(provider().rereg_mr(end->mr, flags, pd, address, bytes, access), IBV_REREG_MR_ERR_INPUT);
    return errno;
  };
  ibv_pd stranger{};
  EXPECT_EQ(input(0, nullptr, nullptr, 0, 0), EINVAL);
  EXPECT_EQ(input(8, nullptr, nullptr, 0, 0), EINVAL);
  EXPECT_EQ(input(IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0), EINVAL);
  EXPECT_EQ(input(IBV_REREG_MR_CHANGE_PD, &stranger, nullptr, 0, 0), EINVAL);
  EXPECT_EQ(input(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, end->buffer.data(), 0, 0), EINVAL);
  EXPECT_EQ(input(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE), EINVAL);
  EXPECT_EQ(input(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
  ibv_mr foreign{};
  EXPECT_EQ(provider().rereg_mr(&foreign, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(end->mr->addr, end->buffer.data());
  EXPECT_EQ(end->mr->pd, end->pd);
}

}  // namespace
}  // namespace beeline::verbs::soft
