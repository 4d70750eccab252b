// Extended completion queues, per type of queue pair.
#include <arpa/inet.h>

#include <cerrno>
#include <chrono>

#include "verbs/soft/testing/kit.h"

namespace beeline::verbs::soft {
namespace {

class CqEx : public SoftVerbs {
 protected:
  ibv_cq_ex* make(ibv_cq_init_attr_ex attr) {
    errno = 0;
    return ibv_create_cq_ex(context(), &attr);
  }
  static ibv_cq_init_attr_ex standard() {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 64;
    attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    return attr;
  }
  static EndOptions extended() {
    EndOptions options;
    options.make_cq = [](ibv_context* context) {
      ibv_cq_init_attr_ex attr = standard();
      return ibv_cq_ex_to_cq(ibv_create_cq_ex(context, &attr));
    };
    return options;
  }
  static int start(ibv_cq_ex* cq) {
    ibv_poll_cq_attr attr{};
    int error = ENOENT;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (error == ENOENT && std::chrono::steady_clock::now() < deadline) error = ibv_start_poll(cq, &attr);
    return error;
  }
};

TEST_F(CqEx, EveryTypeIsReadFieldByField) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    SCOPED_TRACE(type);
    pair_of(type, extended());
    const std::size_t front = type == IBV_QPT_UD ? grh_bytes : 0;
    ASSERT_EQ(b_->post_receive(7, 0, 256), 0);
    Request request(IBV_WR_SEND_WITH_IMM, *a_, 0, 64);
    request.wr.imm_data = htonl(0x1234);
    ASSERT_EQ(request.id(8).post(*a_), 0);
    auto* received = reinterpret_cast<ibv_cq_ex*>(b_->cq);
    ASSERT_EQ(start(received), 0);
    EXPECT_EQ(received->status, IBV_WC_SUCCESS);
    EXPECT_EQ(received->wr_id, 7u);
    EXPECT_EQ(ibv_wc_read_opcode(received), IBV_WC_RECV);
    EXPECT_EQ(ibv_wc_read_byte_len(received), front + 64);
    EXPECT_EQ(ibv_wc_read_imm_data(received), htonl(0x1234));
    EXPECT_EQ(ibv_wc_read_qp_num(received), b_->qp->qp_num);
    EXPECT_EQ(ibv_wc_read_src_qp(received), type == IBV_QPT_UD ? a_->qp->qp_num : 0);
    EXPECT_EQ(ibv_wc_read_wc_flags(received),
              unsigned{IBV_WC_WITH_IMM} | (type == IBV_QPT_UD ? unsigned{IBV_WC_GRH} : 0));
    EXPECT_EQ(ibv_wc_read_vendor_err(received), 0u);
    EXPECT_EQ(ibv_wc_read_slid(received), 0u);
    EXPECT_EQ(ibv_wc_read_sl(received), type == IBV_QPT_UD ? 8 + 2 : 0) << "IPv4 under UDP";
    EXPECT_EQ(ibv_wc_read_dlid_path_bits(received), 0);
    EXPECT_EQ(ibv_next_poll(received), ENOENT);
    ibv_end_poll(received);
    auto* sent = reinterpret_cast<ibv_cq_ex*>(a_->cq);
    ASSERT_EQ(start(sent), 0);
    EXPECT_EQ(sent->wr_id, 8u);
    EXPECT_EQ(ibv_wc_read_opcode(sent), IBV_WC_SEND);
    ibv_end_poll(sent);
  }
}

TEST_F(CqEx, SeveralInOneSession) {
  pair_of(IBV_QPT_RC, extended());
  for (std::uint64_t i = 0; i < 5; ++i)
    ASSERT_EQ(Request(IBV_WR_RDMA_WRITE, *a_, 0, 8).to(*b_).id(i).post(*a_), 0);
  auto* cq = reinterpret_cast<ibv_cq_ex*>(a_->cq);
  for (std::uint64_t seen = 0; seen < 5;) {
    ASSERT_EQ(start(cq), 0);
    do EXPECT_EQ(cq->wr_id, seen++);
    while (ibv_next_poll(cq) == 0);
    ibv_end_poll(cq);
  }
}

TEST_F(CqEx, TheOldWayOfPollingStillWorks) {
  pair_of(IBV_QPT_RC, extended());
  ASSERT_EQ(Request(IBV_WR_RDMA_WRITE, *a_, 0, 8).to(*b_).id(3).post(*a_), 0);
  EXPECT_EQ(a_->wait()[0].wr_id, 3u);
}

TEST_F(CqEx, AnEmptyQueueOrAMisuseHoldsNothing) {
  ibv_cq_ex* cq = make(standard());
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(cq->context, context());
  EXPECT_EQ(cq->cqe, 64);
  ibv_poll_cq_attr attr{};
  EXPECT_EQ(ibv_start_poll(cq, &attr), ENOENT);
  EXPECT_EQ(ibv_start_poll(cq, &attr), ENOENT);
  EXPECT_EQ(ibv_next_poll(cq), EINVAL) << "without a start";
  ibv_end_poll(cq);
  ibv_end_poll(cq);
  attr.comp_mask = 1;
  EXPECT_EQ(ibv_start_poll(cq, &attr), EINVAL);
  EXPECT_EQ(provider().destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  attr.comp_mask = 0;
  EXPECT_EQ(ibv_start_poll(cq, &attr), EINVAL) << "it is dead";
}

TEST_F(CqEx, WhatIsNotOfferedIsRefused) {
  const auto attempt = [&](auto change) {
    ibv_cq_init_attr_ex attr = standard();
    change(attr);
    ibv_cq_ex* cq = make(attr);
    return cq == nullptr ? errno : provider().destroy_cq(ibv_cq_ex_to_cq(cq));
  };
  for (int bit = 0; bit < 64; ++bit)
    EXPECT_EQ(attempt([bit](auto& attr) { attr.wc_flags = std::uint64_t{1} << bit; }),
              bit < 7 ? 0 : EOPNOTSUPP)
        << bit;
  const auto with_flags = [&](unsigned flags) {
    return attempt([flags](auto& attr) {
      attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
      attr.flags = flags;
    });
  };
  EXPECT_EQ(with_flags(IBV_CREATE_CQ_ATTR_SINGLE_THREADED), 0);
  EXPECT_EQ(with_flags(IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN), EOPNOTSUPP);
  EXPECT_EQ(attempt([](auto& attr) { attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD; }), EOPNOTSUPP);
  EXPECT_EQ(attempt([](auto& attr) { attr.comp_mask = 1u << 7; }), EOPNOTSUPP);
  EXPECT_EQ(attempt([](auto& attr) { attr.cqe = 0; }), EINVAL);
  EXPECT_EQ(attempt([](auto& attr) { attr.cqe = UINT32_MAX; }), EINVAL);
  EXPECT_EQ(attempt([](auto& attr) { attr.comp_vector = 1000; }), EINVAL);
  ibv_modify_cq_attr moderation{};
  ibv_cq_ex* cq = make(standard());
  EXPECT_EQ(ibv_modify_cq(ibv_cq_ex_to_cq(cq), &moderation), EOPNOTSUPP);
  EXPECT_EQ(provider().destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

}  // namespace
}  // namespace beeline::verbs::soft
