// Memory windows and what makes their keys invalid.
#include <cerrno>

#include "kit.h"

namespace conformance {
namespace {

class Windows : public Verbs {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Verbs::SetUp());
    EndOptions options;
    options.access |= IBV_ACCESS_MW_BIND;
    pair_of(IBV_QPT_RC, options);
  }
  void TearDown() override {
    if (window_ != nullptr) {
      EXPECT_EQ(ibv_dealloc_mw(window_), 0);
    }
  }
  bool has(unsigned capability) const { return (attributes_.device_cap_flags & capability) != 0; }

  ibv_wc_status write(std::uint32_t rkey, std::size_t to) {
    EXPECT_EQ(a.send(IBV_WR_RDMA_WRITE, 0, 8,
                     [&](ibv_send_wr& wr) {
                       wr.wr.rdma.remote_addr = b.address(to);
                       wr.wr.rdma.rkey = rkey;
                     }),
              0);
    return a.next().status;
  }

  // 64 bytes of b, for its peer to write to. False where the device has none, and says so.
  bool bind_type_1(std::size_t from) {
    window_ = ibv_alloc_mw(b.pd.get(), IBV_MW_TYPE_1);
    EXPECT_EQ(window_ != nullptr, has(IBV_DEVICE_MEM_WINDOW));
    if (window_ == nullptr) return false;
    ibv_mw_bind request{1, IBV_SEND_SIGNALED, {b.mr.get(), b.address(from), 64, IBV_ACCESS_REMOTE_WRITE}};
    EXPECT_EQ(ibv_bind_mw(b.qp.get(), window_, &request), 0);
    EXPECT_EQ(b.next().status, IBV_WC_SUCCESS);
    return true;
  }
  bool allocate_type_2() {
    window_ = ibv_alloc_mw(b.pd.get(), IBV_MW_TYPE_2);
    EXPECT_EQ(window_ != nullptr, has(IBV_DEVICE_MEM_WINDOW_TYPE_2B));
    return window_ != nullptr;
  }
  // The same with a window of type 2. The key.
  std::uint32_t bind_type_2(std::size_t from) {
    const std::uint32_t key = ibv_inc_rkey(window_->rkey);
    EXPECT_EQ(
        b.send(IBV_WR_BIND_MW, 0, 0,
               [&](ibv_send_wr& wr) {
                 wr.num_sge = 0;
                 wr.bind_mw = {window_, key, {b.mr.get(), b.address(from), 64, IBV_ACCESS_REMOTE_WRITE}};
               }),
        0);
    const ibv_wc wc = b.next();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
    window_->rkey = key;
    return key;
  }

  ibv_mw* window_ = nullptr;
};

TEST_F(Windows, Type1GivesWhatWasBound) {
  if (!bind_type_1(128)) return;
  EXPECT_EQ(write(window_->rkey, 128), IBV_WC_SUCCESS);
  EXPECT_TRUE(same(a, 0, b, 128, 8));
}

TEST_F(Windows, Type1GivesNoMoreThanWhatWasBound) {
  if (!bind_type_1(128)) return;
  EXPECT_EQ(write(window_->rkey, 128 + 57), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Windows, Type2IsInvalidatedFromHere) {
  if (!allocate_type_2()) return;
  const std::uint32_t key = bind_type_2(0);
  EXPECT_EQ(write(key, 0), IBV_WC_SUCCESS);
  ASSERT_EQ(b.send(IBV_WR_LOCAL_INV, 0, 0,
                   [&](ibv_send_wr& wr) {
                     wr.num_sge = 0;
                     wr.invalidate_rkey = key;
                   }),
            0);
  const ibv_wc wc = b.next();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_LOCAL_INV);
  const std::uint32_t again = bind_type_2(64);
  EXPECT_EQ(write(again, 64), IBV_WC_SUCCESS);
  EXPECT_EQ(write(key, 0), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Windows, Type2IsInvalidatedFromThere) {
  if (!allocate_type_2()) return;
  const std::uint32_t key = bind_type_2(0);
  ASSERT_EQ(b.receive(4, 1000, 64), 0);
  ASSERT_EQ(a.send(IBV_WR_SEND_WITH_INV, 0, 16, [&](ibv_send_wr& wr) { wr.invalidate_rkey = key; }), 0);
  EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(write(key, 0), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Windows, ARegionsKeyIsNotInvalidated) {
  if (!has(IBV_DEVICE_MEM_WINDOW_TYPE_2B)) return;  // and no local invalidate without them
  ASSERT_EQ(b.send(IBV_WR_LOCAL_INV, 0, 0,
                   [&](ibv_send_wr& wr) {
                     wr.num_sge = 0;
                     wr.invalidate_rkey = b.mr->rkey;
                   }),
            0);
  EXPECT_EQ(b.next().status, IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(b.state(), IBV_QPS_ERR);
}

TEST_F(Windows, WhoseKeyWasInvalidatedLearnsWhich) {
  if (!allocate_type_2()) return;
  const std::uint32_t key = bind_type_2(0);
  ASSERT_EQ(b.receive(4, 1000, 64), 0);
  ASSERT_EQ(a.send(IBV_WR_SEND_WITH_INV, 0, 16, [&](ibv_send_wr& wr) { wr.invalidate_rkey = key; }), 0);
  EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
  const ibv_wc wc = b.next();
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.wc_flags, unsigned{IBV_WC_WITH_INV});
  EXPECT_EQ(wc.invalidated_rkey, key);
}

}  // namespace
}  // namespace conformance
