// Data arrives whole, in order, and completions say so exactly once.
#include <arpa/inet.h>

#include <array>
#include <cerrno>
#include <thread>

#include "verbs/conformance/conformance.h"

namespace beeline::verbs::conformance {

TEST_P(Messages, SendFillsTheReceiveBuffer) {
  End a = make_end(), b = make_end();
  connect(a, b);
  fill(a.buffer, 1);
  ASSERT_EQ(b.post_receive(7, 100, 5000), 0);
  ASSERT_EQ(Request(IBV_WR_SEND, a, 0, 3001).id(9).post(a), 0);
  const auto received = b.wait(1);
  EXPECT_EQ(received[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(received[0].wr_id, 7u);
  EXPECT_EQ(received[0].opcode, IBV_WC_RECV);
  EXPECT_EQ(received[0].byte_len, 3001u);
  EXPECT_EQ(received[0].qp_num, b.qp->qp_num);
  EXPECT_EQ(received[0].wc_flags & IBV_WC_WITH_IMM, 0u);
  const auto sent = a.wait(1);
  EXPECT_EQ(sent[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent[0].wr_id, 9u);
  EXPECT_EQ(sent[0].opcode, IBV_WC_SEND);
  EXPECT_TRUE(same(a, 0, b, 100, 3001));
  EXPECT_EQ(b.buffer[99], std::byte{0});
  EXPECT_EQ(b.buffer[3101], std::byte{0});
}

TEST_P(Messages, EverySizeAroundTheMtuArrives) {
  constexpr std::size_t room = 1 << 20;
  End a = make_end({.buffer_bytes = room}), b = make_end({.buffer_bytes = room});
  connect(a, b);
  fill(a.buffer, 2);
  const std::size_t m = mtu();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, m - 1, m, m + 1, 2 * m, 3 * m + 7, room}) {
    for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes, opcode " << opcode);
      End& target = opcode == IBV_WR_RDMA_READ ? a : b;
      End& initiator = opcode == IBV_WR_RDMA_READ ? b : a;
      std::fill(b.buffer.begin(), b.buffer.end(), std::byte{0x5A});
      const bool send = opcode == IBV_WR_SEND;
      ASSERT_EQ(send ? b.post_receive(1, 0, room) : 0, 0);
      ASSERT_EQ(Request(opcode, initiator, 0, bytes).to(target).post(initiator), 0);
      ASSERT_EQ(initiator.wait(1)[0].status, IBV_WC_SUCCESS);
      ASSERT_EQ(send ? b.wait(1)[0].byte_len : bytes, bytes);
      EXPECT_TRUE(same(a, 0, b, 0, bytes));
      EXPECT_EQ(bytes < room ? b.buffer[bytes] : std::byte{0x5A}, std::byte{0x5A}) << "one byte too many";
    }
  }
}

TEST_P(Messages, ImmediateDataTravelsWithSendAndWrite) {
  End a = make_end(), b = make_end();
  connect(a, b);
  fill(a.buffer, 3);
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM}) {
    const bool write = opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    ASSERT_EQ(b.post_receive(5, 0, 4096), 0);
    Request request(opcode, a, 64, 2000);
    request.to(b, 8192);
    request.wr.imm_data = htonl(0xDEADBEEF);
    ASSERT_EQ(request.post(a), 0);
    EXPECT_EQ(a.wait(1)[0].opcode, write ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
    const ibv_wc received = b.wait(1)[0];
    EXPECT_EQ(received.opcode, write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
    EXPECT_EQ(received.wc_flags & IBV_WC_WITH_IMM, static_cast<unsigned>(IBV_WC_WITH_IMM));
    EXPECT_EQ(ntohl(received.imm_data), 0xDEADBEEF);
    EXPECT_EQ(received.byte_len, 2000u);
    EXPECT_TRUE(same(a, 64, b, write ? 8192 : 0, 2000));
  }
}

TEST_P(Messages, PiecesAreGatheredAndScattered) {
  End a = make_end({.qp = {.send_sges = 3, .receive_sges = 2}});
  End b = make_end({.qp = {.send_sges = 3, .receive_sges = 2}});
  connect(a, b);
  fill(a.buffer, 4);
  std::array<ibv_sge, 2> in = {b.sge(0, 1500), b.sge(10000, 3000)};
  ibv_recv_wr receive{};
  receive.sg_list = in.data();
  receive.num_sge = 2;
  ibv_recv_wr* bad_receive = nullptr;
  ASSERT_EQ(ibv_post_recv(b.qp.get(), &receive, &bad_receive), 0);
  std::array<ibv_sge, 3> out = {a.sge(5, 1), a.sge(100, 1999), a.sge(40000, 1000)};
  Request request(IBV_WR_SEND, a, 0, 0);
  request.wr.sg_list = out.data();
  request.wr.num_sge = 3;
  ASSERT_EQ(request.post(a), 0);
  EXPECT_EQ(b.wait(1)[0].byte_len, 3000u);
  EXPECT_TRUE(same(a, 5, b, 0, 1));
  EXPECT_TRUE(same(a, 100, b, 1, 1499));
  EXPECT_TRUE(same(a, 1599, b, 10000, 500));
  EXPECT_TRUE(same(a, 40000, b, 10500, 1000));
}

TEST_P(Messages, InlineDataIsCopiedAtPosting) {
  End a = make_end({.qp = {.inline_bytes = 64}}), b = make_end();
  connect(a, b);
  fill(a.buffer, 5);
  const std::vector<std::byte> before(a.buffer.begin(), a.buffer.begin() + 64);
  Request request(IBV_WR_RDMA_WRITE, a, 0, 64);
  request.to(b).flags(IBV_SEND_INLINE);
  request.sge.lkey = 0;  // ignored
  ASSERT_EQ(request.post(a), 0);
  std::fill(a.buffer.begin(), a.buffer.begin() + 64, std::byte{0});
  ASSERT_EQ(a.wait(1)[0].status, IBV_WC_SUCCESS);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), b.buffer.begin()));
  EXPECT_EQ(Request(IBV_WR_RDMA_WRITE, a, 0, 65).to(b).flags(IBV_SEND_INLINE).post(a), EINVAL);
}

TEST_P(Messages, OnlySignaledRequestsComplete) {
  End a = make_end(), b = make_end();
  connect(a, b);
  for (std::uint64_t i = 0; i < 20; ++i) {
    Request request(IBV_WR_RDMA_WRITE, a, 0, 8);
    request.to(b).id(i);
    if (i != 9 && i != 19) request.wr.send_flags = 0;
    ASSERT_EQ(request.post(a), 0);
  }
  const auto completions = a.wait(2);
  EXPECT_EQ(completions[0].wr_id, 9u);
  EXPECT_EQ(completions[1].wr_id, 19u);
  ibv_wc extra{};
  EXPECT_EQ(ibv_poll_cq(a.cq.get(), 1, &extra), 0);
}

TEST_P(Messages, AFullQueueRefusesAndNamesTheRequest) {
  // The receiver has posted nothing: sends stay in the queue.
  End a = make_end({.qp = {.send_depth = 4}}), b = make_end({.qp = {.receive_depth = 4}});
  connect(a, b);
  std::array<ibv_send_wr, 6> list{};
  ibv_sge piece = a.sge(0, 16);
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i].wr_id = i;
    list[i].sg_list = &piece;
    list[i].num_sge = 1;
    list[i].opcode = IBV_WR_SEND;
    list[i].send_flags = IBV_SEND_SIGNALED;
    list[i].next = i + 1 < list.size() ? &list[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(a.qp.get(), list.data(), &bad), ENOMEM);
  EXPECT_EQ(bad, &list[4]);
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(b.post_receive(i, 100 * i, 16), 0);
  const auto sent = a.wait(4), received = b.wait(4);
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sent[i].wr_id, i);
    EXPECT_EQ(sent[i].status, IBV_WC_SUCCESS);
    EXPECT_EQ(received[i].wr_id, i);
  }
  EXPECT_EQ(Request(IBV_WR_RDMA_WRITE, a, 0, 8).to(b).post(a), 0) << "polled completions free the queue";
  EXPECT_EQ(a.wait(1)[0].status, IBV_WC_SUCCESS);
}

TEST_P(Messages, TooManyPiecesAreRefused) {
  End a = make_end(), b = make_end();
  connect(a, b);
  std::array<ibv_sge, 40> pieces{};
  pieces.fill(a.sge(0, 1));
  for (const int count : {2, 40, -1}) {
    Request request(IBV_WR_SEND, a, 0, 0);
    request.wr.sg_list = pieces.data();
    request.wr.num_sge = count;
    EXPECT_EQ(request.post(a), EINVAL) << count;
    ibv_recv_wr receive{};
    receive.sg_list = pieces.data();
    receive.num_sge = count;
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(b.qp.get(), &receive, &bad), EINVAL) << count;
    EXPECT_EQ(bad, &receive);
  }
}

TEST_P(Messages, ASendWaitsForItsReceiver) {
  End a = make_end(), b = make_end();
  connect(a, b, {.min_rnr_timer = 1});  // 10 us
  fill(a.buffer, 6);
  ASSERT_EQ(Request(IBV_WR_SEND, a, 0, 2500).post(a), 0);
  ibv_wc none{};
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(ibv_poll_cq(a.cq.get(), 1, &none), 0);
    EXPECT_EQ(ibv_poll_cq(b.cq.get(), 1, &none), 0);
  }
  ASSERT_EQ(b.post_receive(1, 0, 4096), 0);
  EXPECT_EQ(b.wait(1)[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(a.wait(1)[0].status, IBV_WC_SUCCESS);
  EXPECT_TRUE(same(a, 0, b, 0, 2500));
}

TEST_P(Messages, ReadSeesTheWritesBeforeIt) {
  End a = make_end(), b = make_end();
  connect(a, b);
  fill(a.buffer, 7);
  for (std::size_t i = 0; i < 8; ++i) {
    // A WRITE may overtake a READ before it unless it is fenced.
    ASSERT_EQ(Request(IBV_WR_RDMA_WRITE, a, i * 2000, 2000).to(b, 0).flags(IBV_SEND_FENCE).post(a), 0);
    ASSERT_EQ(Request(IBV_WR_RDMA_READ, a, 30000 + i * 2000, 2000).to(b, 0).post(a), 0);
  }
  for (const ibv_wc& wc : a.wait(16)) ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_TRUE(same(a, i * 2000, a, 30000 + i * 2000, 2000)) << i;
}

TEST_P(Messages, BothDirectionsAtOnceKeepTheirOrder) {
  constexpr std::uint64_t rounds = 200;
  End a = make_end(), b = make_end();
  connect(a, b);
  const auto play = [](End& self, End& peer) {
    std::uint64_t received = 0, sent = 0, posted = 0, receives = 0;
    for (; receives < 32; ++receives) ASSERT_EQ(self.post_receive(receives, 0, 64), 0);
    while (received < rounds || sent < rounds) {
      if (posted < rounds && posted - sent < 32) {
        ASSERT_EQ(Request(IBV_WR_SEND, self, 1024, 64).to(peer).id(posted).post(self), 0);
        ++posted;
      }
      ibv_wc wc{};
      if (ibv_poll_cq(self.cq.get(), 1, &wc) != 1) continue;
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      if (wc.opcode == IBV_WC_SEND) {
        ASSERT_EQ(wc.wr_id, sent++);
      } else {
        ASSERT_EQ(wc.wr_id, received++);
        ASSERT_EQ(receives < rounds ? self.post_receive(receives++, 0, 64) : 0, 0);
      }
    }
  };
  std::thread other([&] { play(b, a); });
  play(a, b);
  other.join();
}

TEST_P(Messages, QueuePairsOfManyThreadsDoNotDisturbEachOther) {
  std::vector<End> senders, receivers;
  for (unsigned i = 0; i < 4; ++i) {
    senders.push_back(make_end());
    receivers.push_back(make_end());
    connect(senders.back(), receivers.back());
    fill(senders.back().buffer, 100 + i);
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < senders.size(); ++i)
    threads.emplace_back([&a = senders[i], &b = receivers[i]] {
      for (std::size_t round = 0; round < 16; ++round) {
        ASSERT_EQ(Request(IBV_WR_RDMA_WRITE, a, round * 4096, 4096).to(b, round * 4096).post(a), 0);
        ASSERT_EQ(a.wait(1)[0].status, IBV_WC_SUCCESS);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < senders.size(); ++i)
    EXPECT_TRUE(same(senders[i], 0, receivers[i], 0, senders[i].buffer.size())) << i;
}

TEST_P(Messages, AResetQueuePairStartsAfresh) {
  End a = make_end(), b = make_end();
  connect(a, b);
  ASSERT_EQ(b.post_receive(1, 0, 64), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  for (End* end : {&a, &b}) ASSERT_EQ(provider().modify_qp(end->qp.get(), &attr, IBV_QP_STATE), 0);
  connect(a, b);
  fill(a.buffer, 8);
  ASSERT_EQ(b.post_receive(2, 0, 64), 0);
  ASSERT_EQ(Request(IBV_WR_SEND, a, 0, 64).post(a), 0);
  EXPECT_EQ(b.wait(1)[0].wr_id, 2u) << "receives posted before the reset are gone";
  EXPECT_EQ(a.wait(1)[0].status, IBV_WC_SUCCESS);
  EXPECT_TRUE(same(a, 0, b, 0, 64));
}

}  // namespace beeline::verbs::conformance
