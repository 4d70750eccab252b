// What programs do to handles: freed twice, foreign, overwritten, used after their end, destroyed in the
// wrong order, too many.
#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>

#include "verbs/soft/testing/kit.h"

namespace beeline::verbs::soft {
namespace {

class Handles : public SoftVerbs {};

TEST_F(Handles, EveryObjectIsFreedOnce) {
  ibv_pd* pd = provider().alloc_pd(context());
  std::byte memory[64];
  ibv_mr* mr = provider().reg_mr(pd, memory, sizeof memory, 0);
  ibv_comp_channel* channel = provider().create_comp_channel(context());
  ibv_cq* cq = provider().create_cq(context(), 8, nullptr, channel, 0);
  ibv_srq_init_attr shared{nullptr, {8, 1, 0}};
  ibv_srq* srq = provider().create_srq(pd, &shared);
  ibv_ah_attr to = address_of_this_host();
  ibv_ah* ah = provider().create_ah(pd, &to);
  ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {1, 1, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  ibv_qp* qp = provider().create_qp(pd, &attr);
  for (const void* object :
       {static_cast<const void*>(pd), static_cast<const void*>(mr), static_cast<const void*>(channel),
        static_cast<const void*>(cq), static_cast<const void*>(srq), static_cast<const void*>(ah),
        static_cast<const void*>(mw), static_cast<const void*>(qp), static_cast<const void*>(context())}) {
    ASSERT_NE(object, nullptr);
    EXPECT_TRUE(provider().owns(object));
  }

  EXPECT_EQ(provider().close_device(context()), EBUSY);
  EXPECT_EQ(provider().dealloc_pd(pd), EBUSY);
  EXPECT_EQ(provider().destroy_cq(cq), EBUSY);
  EXPECT_EQ(provider().destroy_comp_channel(channel), EBUSY);
  EXPECT_EQ(provider().destroy_qp(qp), 0);
  EXPECT_EQ(provider().destroy_qp(qp), EINVAL);
  EXPECT_EQ(provider().destroy_srq(srq), 0);
  EXPECT_EQ(provider().destroy_srq(srq), EINVAL);
  EXPECT_EQ(provider().destroy_cq(cq), 0);
  EXPECT_EQ(provider().destroy_cq(cq), EINVAL);
  EXPECT_EQ(provider().destroy_comp_channel(channel), 0);
  EXPECT_EQ(provider().destroy_comp_channel(channel), EINVAL);
  EXPECT_EQ(provider().dereg_mr(mr), 0);
  EXPECT_EQ(provider().dereg_mr(mr), EINVAL);
  EXPECT_EQ(provider().dealloc_pd(pd), EBUSY) << "a window and an address handle still stand on it";
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dealloc_mw(mw), EINVAL);
  EXPECT_EQ(provider().dealloc_pd(pd), EBUSY) << "an address handle still stands on it";
  EXPECT_EQ(provider().destroy_ah(ah), 0);
  EXPECT_EQ(provider().destroy_ah(ah), EINVAL);
  EXPECT_EQ(provider().dealloc_pd(pd), 0);
  EXPECT_EQ(provider().dealloc_pd(pd), EINVAL);
  EXPECT_FALSE(provider().owns(pd));
}

TEST_F(Handles, ASharedQueueStaysWhileQueuePairsUseIt) {
  auto end = make_end({.shared_queue = true});
  EXPECT_EQ(provider().destroy_srq(end->srq), EBUSY);
}

TEST_F(Handles, OneKindIsNotAnother) {
  auto end = make_end();
  EXPECT_EQ(provider().dealloc_pd(reinterpret_cast<ibv_pd*>(end->cq)), EINVAL);
  EXPECT_EQ(provider().destroy_qp(reinterpret_cast<ibv_qp*>(end->mr)), EINVAL);
  EXPECT_EQ(provider().destroy_cq(reinterpret_cast<ibv_cq*>(end->qp)), EINVAL);
  EXPECT_EQ(provider().alloc_pd(reinterpret_cast<ibv_context*>(end->pd)), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(provider().reg_mr(reinterpret_cast<ibv_pd*>(end->qp), end->buffer.data(), 64, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Handles, NullAndStrangersAreRefused) {
  ibv_qp stranger{};
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  for (ibv_qp* qp : {static_cast<ibv_qp*>(nullptr), &stranger}) {
    EXPECT_EQ(provider().modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    EXPECT_EQ(provider().query_qp(qp, &attr, IBV_QP_STATE, &init), EINVAL);
    EXPECT_EQ(provider().destroy_qp(qp), EINVAL);
    EXPECT_EQ(provider().qp_to_qp_ex(qp), nullptr);
  }
  ibv_device device{};
  EXPECT_FALSE(provider().owns_device(&device));
  EXPECT_EQ(provider().open_device(&device), nullptr);
  EXPECT_EQ(errno, ENODEV);
  EXPECT_EQ(provider().get_device_index(&device), -1);
  ibv_context closed{};
  ibv_async_event event{};
  EXPECT_EQ(provider().get_async_event(&closed, &event), -1);
  EXPECT_EQ(errno, EINVAL);
  ibv_port_attr port{};
  EXPECT_EQ(provider().query_port(&closed, 1, &port), EINVAL);
  event.event_type = IBV_EVENT_QP_FATAL;
  event.element.qp = &stranger;
  provider().ack_async_event(&event);
  ibv_cq cq{};
  provider().ack_cq_events(&cq, 1);
  EXPECT_EQ(cq.comp_events_completed, 0u);
}

TEST_F(Handles, PublicFieldsMayBeOverwritten) {
  auto a = make_end(), b = make_end();
  connect(*a, *b);
  for (End* end : {a.get(), b.get()}) {
    end->qp->handle = end->cq->handle = end->pd->handle = end->mr->handle = 0xDEAD;
    end->qp->qp_num ^= 0xFFFF;
    end->qp->send_cq = end->qp->recv_cq = nullptr;
    end->qp->pd = nullptr;
    end->qp->qp_type = IBV_QPT_UD;
    end->qp->state = IBV_QPS_ERR;
  }
  ASSERT_EQ(b->post_receive(1, 0, 64), 0);
  Request request(IBV_WR_SEND, *a, 0, 64);
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a->qp, &request.wr, &bad), 0);
  EXPECT_EQ(a->wait()[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(b->wait()[0].status, IBV_WC_SUCCESS);
  // Verbs that are exported need not even follow `context`.
  ibv_context* garbage = reinterpret_cast<ibv_context*>(std::uintptr_t{0x10});
  a->qp->context = a->cq->context = a->pd->context = a->mr->context = garbage;
  a->mr->lkey = a->mr->rkey = 0;
  EXPECT_EQ(a->state(), IBV_QPS_RTS);
}

// Its memory outlives it for a while, so that this is an error and not a crash.
TEST_F(Handles, TheDeadAreRecognizedWherePostingAndPollingLook) {
  auto end = make_end({.shared_queue = true});
  auto own = make_end({.type = IBV_QPT_UD});
  connect(*own, *own);
  ibv_srq* srq = std::exchange(end->srq, nullptr);
  ibv_ah* ah = std::exchange(own->ah, nullptr);
  ASSERT_EQ(provider().destroy_qp(std::exchange(end->qp, nullptr)), 0);
  ASSERT_EQ(provider().destroy_srq(srq), 0);
  ASSERT_EQ(provider().destroy_ah(ah), 0);
  ibv_sge piece = own->sge(0, 8);
  ibv_recv_wr receive{};
  receive.sg_list = &piece;
  receive.num_sge = 1;
  ibv_recv_wr* bad_receive = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(srq, &receive, &bad_receive), EINVAL);
  EXPECT_EQ(bad_receive, &receive);

  Request request(IBV_WR_SEND, *own, 0, 8);
  request.wr.wr.ud = {ah, own->qp->qp_num, qkey};
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(own->qp, &request.wr, &bad), EINVAL) << "to a dead address";
  ibv_qp* qp = std::exchange(own->qp, nullptr);
  ibv_cq* cq = std::exchange(own->cq, nullptr);
  ASSERT_EQ(provider().destroy_qp(qp), 0);
  ASSERT_EQ(provider().destroy_cq(cq), 0);
  EXPECT_EQ(ibv_post_send(qp, &request.wr, &bad), EINVAL);
  EXPECT_EQ(bad, &request.wr);
  EXPECT_EQ(ibv_post_recv(qp, &receive, &bad_receive), EINVAL);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), -1);
  EXPECT_EQ(ibv_req_notify_cq(cq, 0), EINVAL);
}

// On a real card this is the program's own fault, and it crashes. Here it is an error that it gets.
TEST_F(Handles, PostingToAQueuePairThatAnotherThreadDestroysIsRefused) {
  for (int round = 0; round < 50; ++round) {
    auto own = make_end();
    advance(*own, *own, IBV_QPS_RTS);
    std::atomic<int> posted{0};
    int last = 0;
    std::thread poster([&] {
      while (last == 0 || last == ENOMEM) {
        Request request(IBV_WR_SEND, *own, 0, 8);
        ibv_recv_wr receive{}, *bad_receive = nullptr;
        ibv_send_wr* bad = nullptr;
        receive.sg_list = &request.sge;
        receive.num_sge = 1;
        last = ibv_post_recv(own->qp, &receive, &bad_receive);
        if (last == 0 || last == ENOMEM) last = ibv_post_send(own->qp, &request.wr, &bad);
        ++posted;
      }
    });
    while (posted < 20) std::this_thread::yield();
    EXPECT_EQ(provider().destroy_qp(own->qp), 0);
    poster.join();
    own->qp = nullptr;
    EXPECT_EQ(last, EINVAL);
  }
}

TEST_F(Handles, ObjectsOfAnotherContextDoNotMix) {
  ibv_context* other = provider().open_device(context()->device);
  ASSERT_NE(other, nullptr);
  ibv_pd* pd = provider().alloc_pd(other);
  auto end = make_end();
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = end->cq;
  attr.cap = {1, 1, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  EXPECT_EQ(provider().create_qp(pd, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_comp_channel* channel = provider().create_comp_channel(other);
  EXPECT_EQ(provider().create_cq(context(), 8, nullptr, channel, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(provider().destroy_comp_channel(channel), 0);
  EXPECT_EQ(provider().dealloc_pd(pd), 0);
  EXPECT_EQ(provider().close_device(other), 0);
  EXPECT_EQ(provider().close_device(other), EINVAL);
}

TEST_F(Handles, AddressesAreChecked) {
  ibv_pd* pd = provider().alloc_pd(context());
  const auto refused = [&](auto spoil) {
    ibv_ah_attr attr = address_of_this_host();
    spoil(attr);
    errno = 0;
    ibv_ah* ah = provider().create_ah(pd, &attr);
    if (ah != nullptr) provider().destroy_ah(ah);
    return ah == nullptr ? errno : 0;
  };
  EXPECT_EQ(refused([](ibv_ah_attr&) {}), 0);
  EXPECT_EQ(refused([](ibv_ah_attr& attr) { attr.is_global = 0; }), EINVAL) << "RoCE needs a GRH";
  EXPECT_EQ(refused([](ibv_ah_attr& attr) { attr.port_num = 2; }), EINVAL);
  EXPECT_EQ(refused([](ibv_ah_attr& attr) { attr.port_num = 0; }), EINVAL);
  EXPECT_EQ(refused([](ibv_ah_attr& attr) { attr.grh.sgid_index = 200; }), EINVAL);
  EXPECT_EQ(refused([](ibv_ah_attr& attr) { attr.grh.dgid = {}; }), EINVAL);
  EXPECT_EQ(provider().dealloc_pd(pd), 0);
}

TEST_F(Handles, AWorkRequestNeedsAHandleOfItsDomain) {
  auto a = make_end({.type = IBV_QPT_UD}), b = make_end({.type = IBV_QPT_UD});
  connect(*a, *b);
  Request request(IBV_WR_SEND, *a, 0, 8);
  ibv_send_wr* bad = nullptr;
  request.wr.wr.ud = {nullptr, b->qp->qp_num, qkey};
  EXPECT_EQ(ibv_post_send(a->qp, &request.wr, &bad), EINVAL);
  request.wr.wr.ud.ah = reinterpret_cast<ibv_ah*>(std::uintptr_t{0x10});
  EXPECT_EQ(ibv_post_send(a->qp, &request.wr, &bad), EINVAL) << "an address where nothing is";
  request.wr.wr.ud.ah = b->ah;
  EXPECT_EQ(ibv_post_send(a->qp, &request.wr, &bad), EINVAL);
  request.wr.wr.ud = {a->ah, 0x1000000, qkey};
  EXPECT_EQ(ibv_post_send(a->qp, &request.wr, &bad), EINVAL) << "a queue pair number of 25 bits";
}

TEST_F(SoftVerbs, ClosingWithAllTakesWhatTheProgramForgot) {
  ibv_context* other = provider().open_device(context()->device);
  ASSERT_NE(other, nullptr);
  ibv_comp_channel* channel = provider().create_comp_channel(other);
  ibv_cq* cq = provider().create_cq(other, 4, nullptr, channel, 0);
  ibv_pd* pd = provider().alloc_pd(other);
  std::array<std::byte, 64> memory{};
  ASSERT_NE(provider().reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE), nullptr);
  ibv_srq_init_attr srq_attr{};
  srq_attr.attr = {4, 1, 0};
  ibv_srq* srq = provider().create_srq(pd, &srq_attr);
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.srq = srq;
  attr.cap = {1, 0, 1, 0, 0};
  attr.qp_type = IBV_QPT_RC;
  ibv_qp* qp = provider().create_qp(pd, &attr);
  ASSERT_NE(qp, nullptr);

  // An event that was fetched and never acknowledged must not hold it up.
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  ibv_qp_attr to_error{};
  to_error.qp_state = IBV_QPS_INIT;
  to_error.port_num = 1;
  ASSERT_EQ(provider().modify_qp(qp, &to_error,
                                 IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS),
            0);
  to_error.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(provider().modify_qp(qp, &to_error, IBV_QP_STATE), 0);
  ibv_send_wr send{};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(qp, &send, &bad), 0) << "it is flushed";
  ibv_cq* fetched = nullptr;
  void* cookie = nullptr;
  ASSERT_EQ(provider().get_cq_event(channel, &fetched, &cookie), 0);

  EXPECT_EQ(provider().close_device(other), EBUSY);
  EXPECT_EQ(provider().close_device_with_all(other), 0);
  for (const void* gone : {static_cast<const void*>(cq), static_cast<const void*>(qp),
                           static_cast<const void*>(srq), static_cast<const void*>(other)})
    EXPECT_FALSE(provider().owns(gone));
  EXPECT_EQ(provider().close_device_with_all(other), EINVAL);
}

}  // namespace
}  // namespace beeline::verbs::soft
