// Messages of connections and datagrams: bytes, immediates, inline data, atomics.
#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>

#include "kit.h"

namespace conformance {
namespace {

class Messages : public Verbs {};

TEST_F(Messages, ConnectionsCarryEverySizeWithAndWithoutImmediate) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    pair_of(type);
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, mtu_bytes() - 1, mtu_bytes(), mtu_bytes() + 1, std::size_t{30001}})
      for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM}) {
        SCOPED_TRACE(testing::Message() << "type " << type << ", " << bytes << " bytes, opcode " << opcode);
        const bool write = opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
        std::fill(b.buffer.begin(), b.buffer.end(), std::byte{0x5A});
        ASSERT_EQ(b.receive(7, 0, write ? 1 : b.buffer.size()), 0);
        ASSERT_EQ(write ? a.access(opcode, bytes, 0, 0xDEADBEEF)
                        : a.send(opcode, 0, bytes, [](ibv_send_wr& wr) { wr.imm_data = htonl(0xDEADBEEF); }),
                  0);
        const ibv_wc sent = a.next(), received = b.next();
        ASSERT_EQ(sent.status, IBV_WC_SUCCESS);
        ASSERT_EQ(received.status, IBV_WC_SUCCESS);
        EXPECT_EQ(sent.opcode, write ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
        EXPECT_EQ(received.opcode, write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
        EXPECT_EQ(received.wr_id, 7u);
        EXPECT_EQ(received.byte_len, bytes);
        EXPECT_EQ(received.qp_num, b.qp->qp_num);
        EXPECT_EQ((received.wc_flags & IBV_WC_WITH_IMM) != 0, opcode != IBV_WR_SEND);
        if (opcode != IBV_WR_SEND) {
          EXPECT_EQ(ntohl(received.imm_data), 0xDEADBEEF);
        }
        EXPECT_TRUE(same(a, 0, b, 0, bytes));
        EXPECT_EQ(b.buffer[bytes], std::byte{0x5A}) << "one byte too many";
      }
  }
}

TEST_F(Messages, ReadsBringWhatThePeerHolds) {
  pair_of(IBV_QPT_RC);
  for (const std::size_t bytes : {std::size_t{1}, mtu_bytes(), std::size_t{30001}}) {
    std::fill(b.buffer.begin(), b.buffer.end(), std::byte{0x5A});
    ASSERT_EQ(b.access(IBV_WR_RDMA_READ, bytes), 0);
    const ibv_wc wc = b.next();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
    EXPECT_TRUE(same(a, 0, b, 0, bytes));
    EXPECT_EQ(b.buffer[bytes], std::byte{0x5A}) << "one byte too many";
  }
}

TEST_F(Messages, InlineBytesAreThoseOfThePost) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    SCOPED_TRACE(type);
    pair_of(type);
    const std::vector<std::byte> before(a.buffer.begin(), a.buffer.begin() + 32);
    ASSERT_EQ(b.receive(1, 0, 100), 0);
    ASSERT_EQ(a.send(IBV_WR_SEND, 0, 32,
                     [](ibv_send_wr& wr) {
                       wr.send_flags |= IBV_SEND_INLINE;
                       wr.sg_list->lkey = 0;  // ignored
                     }),
              0);
    std::fill(a.buffer.begin(), a.buffer.begin() + 32, std::byte{0});
    EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
    ASSERT_EQ(b.next().status, IBV_WC_SUCCESS);
    const auto start = b.buffer.begin() + (type == IBV_QPT_UD ? std::ptrdiff_t{grh_bytes} : 0);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), start));
  }
}

TEST_F(Messages, MoreInlineBytesThanTheQueuePairHasAreRefused) {
  pair_of(IBV_QPT_RC);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(a.qp.get(), &attr, IBV_QP_CAP, &init), 0);
  ASSERT_GE(init.cap.max_inline_data, 32u);
  const auto with_inline = [](ibv_send_wr& wr) { wr.send_flags |= IBV_SEND_INLINE; };
  EXPECT_NE(a.send(IBV_WR_SEND, 0, init.cap.max_inline_data + 1, with_inline), 0);
}

TEST_F(Messages, DatagramsSayWhereTheyComeFrom) {
  pair_of(IBV_QPT_UD);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, mtu_bytes()})
    for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM}) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes, opcode " << opcode);
      ASSERT_EQ(b.receive(3, 0, grh_bytes + mtu_bytes()), 0);
      ASSERT_EQ(a.send(opcode, 0, bytes, [](ibv_send_wr& wr) { wr.imm_data = htonl(0xC0FFEE); }), 0);
      EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
      const ibv_wc wc = b.next();
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      EXPECT_EQ(wc.wr_id, 3u);
      EXPECT_EQ(wc.byte_len, grh_bytes + bytes);
      EXPECT_EQ(wc.src_qp, a.qp->qp_num);
      EXPECT_NE(wc.wc_flags & IBV_WC_GRH, 0u);
      EXPECT_EQ((wc.wc_flags & IBV_WC_WITH_IMM) != 0, opcode == IBV_WR_SEND_WITH_IMM);
      if (opcode == IBV_WR_SEND_WITH_IMM) {
        EXPECT_EQ(ntohl(wc.imm_data), 0xC0FFEEu);
      }
      EXPECT_TRUE(same(a, 0, b, grh_bytes, bytes));
    }
}

// An address handle of what was received leads back (ibv_create_ah_from_wc(3)).
TEST_F(Messages, ADatagramIsAnswered) {
  pair_of(IBV_QPT_UD);
  ASSERT_EQ(b.receive(1, 0, 200), 0);
  ASSERT_EQ(a.send(IBV_WR_SEND, 0, 64), 0);
  ASSERT_EQ(a.next().status, IBV_WC_SUCCESS);
  ibv_wc wc = b.next();
  ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  const Address back(ibv_create_ah_from_wc(b.pd.get(), &wc, reinterpret_cast<ibv_grh*>(b.buffer.data()), 1));
  ASSERT_NE(back, nullptr);
  ASSERT_EQ(a.receive(2, 1000, 200), 0);
  ASSERT_EQ(b.send(IBV_WR_SEND, grh_bytes, 64,
                   [&](ibv_send_wr& wr) {
                     wr.wr.ud.ah = back.get();
                     wr.wr.ud.remote_qpn = wc.src_qp;
                   }),
            0);
  EXPECT_EQ(b.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(same(a, 1000 + grh_bytes, b, grh_bytes, 64));
}

TEST_F(Messages, ADatagramTellsTheClassThatItsAddressHandleHas) {
  pair_of(IBV_QPT_UD);
  ibv_ah_attr address = own_address();
  address.grh.traffic_class = 0x68;
  a.ah.reset(ibv_create_ah(a.pd.get(), &address));
  ASSERT_NE(a.ah, nullptr);
  ASSERT_EQ(b.receive(1, 0, 200), 0);
  ASSERT_EQ(a.send(IBV_WR_SEND, 0, 64), 0);
  ASSERT_EQ(a.next().status, IBV_WC_SUCCESS);
  ibv_wc wc = b.next();
  ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  ibv_ah_attr back{};
  ASSERT_EQ(ibv_init_ah_from_wc(b.qp->context, 1, &wc, reinterpret_cast<ibv_grh*>(b.buffer.data()), &back),
            0);
  EXPECT_EQ(back.grh.traffic_class, 0x68);
}

TEST_F(Messages, ADatagramWithAnotherKeyIsDropped) {
  pair_of(IBV_QPT_UD);
  ASSERT_EQ(b.receive(1, 0, 200), 0);
  ASSERT_EQ(a.send(IBV_WR_SEND, 0, 8, [](ibv_send_wr& wr) { wr.wr.ud.remote_qkey ^= 1; }), 0);
  ASSERT_EQ(a.send(IBV_WR_SEND, 8, 8), 0);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(a.next().status, IBV_WC_SUCCESS) << "nobody tells a datagram's sender";
  EXPECT_EQ(b.next().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(same(a, 8, b, grh_bytes, 8)) << "the second";
  EXPECT_FALSE(b.has_more());
}

TEST_F(Messages, AtomicsReturnWhatWasThere) {
  pair_of(IBV_QPT_RC);
  if (attributes_.atomic_cap == IBV_ATOMIC_NONE) {
    EXPECT_TRUE(a.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1) != 0 || a.next().status != IBV_WC_SUCCESS);
    return;
  }
  b.word() = 40;
  b.word(8) = 7;
  ASSERT_EQ(a.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 2), 0);
  ibv_wc wc = a.next();
  ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(a.word(), 40u);
  EXPECT_EQ(b.word(), 42u);
  for (const std::uint64_t guess : {41u, 42u}) {
    ASSERT_EQ(a.atomic(IBV_WR_ATOMIC_CMP_AND_SWP, guess, 99), 0);
    wc = a.next();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_COMP_SWAP);
    EXPECT_EQ(a.word(), 42u) << "also in vain";
    EXPECT_EQ(b.word(), guess == 42 ? 99u : 42u);
  }
  EXPECT_EQ(b.word(8), 7u);
}

// Refused here, or by the peer.
TEST_F(Messages, AnAtomicThatIsNotAlignedIsInvalid) {
  pair_of(IBV_QPT_RC);
  const int posted = a.send(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, [&](ibv_send_wr& wr) {
    wr.wr.atomic.remote_addr = b.address(4);
    wr.wr.atomic.rkey = b.mr->rkey;
  });
  if (posted == 0)
    EXPECT_EQ(a.next().status, IBV_WC_REM_INV_REQ_ERR);
  else
    EXPECT_EQ(posted, EINVAL);
}

TEST_F(Messages, AnyAddressMayStandForTheMemory) {
  pair_of(IBV_QPT_RC);
  constexpr std::uint64_t iova = 0x7000'0000'0000;
  // The same place in a page: ibv_reg_mr_iova(3).
  const std::uint64_t start = iova | (b.address() & 0xFFF);
  const Region other(ibv_reg_mr_iova(b.pd.get(), b.buffer.data(), b.buffer.size(), start, every_right));
  ASSERT_NE(other, nullptr);
  ASSERT_EQ(a.send(IBV_WR_RDMA_WRITE, 0, 100,
                   [&](ibv_send_wr& wr) {
                     wr.wr.rdma.remote_addr = start + 5;
                     wr.wr.rdma.rkey = other->rkey;
                   }),
            0);
  EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(same(a, 0, b, 5, 100));
}

}  // namespace
}  // namespace conformance
