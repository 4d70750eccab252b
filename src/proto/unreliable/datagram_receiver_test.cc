// What a queue pair for datagrams makes of the packets that come in.

#include "proto/unreliable/datagram_receiver.h"

#include <gtest/gtest.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>

#include <cstring>

#include "proto/testing/unreliable_solo.h"

namespace beeline::proto::testing {
namespace {

using enum wire::Opcode;

// Sum of the 16-bit words, end-around carry: all ones when the checksum is right (RFC 1071).
std::uint16_t one_s_complement_sum(Bytes bytes) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); i += 2) sum += load_be16(bytes.data() + i);
  while (sum > 0xFFFF) sum = (sum >> 16) + (sum & 0xFFFF);
  return static_cast<std::uint16_t>(sum);
}

class DatagramReceiverTest : public ::testing::Test {
 protected:
  void give(std::uint32_t bytes, const Arrival& arrival = {}, std::uint32_t qkey = own_qkey,
            wire::Opcode opcode = ud_send_only) {
    wire::Headers headers = Solo::header(opcode, Psn{77});
    headers.bth.pad_count = wire::pad_for(bytes);
    headers.bth.solicited = true;
    headers.deth = {qkey, peer_qpn};
    headers.immediate = 0xFEED;
    solo.qp.handle_packet(solo.now, {&wire::info(opcode), headers, solo.payload(bytes)}, arrival);
  }
  Bytes buffer() { return solo.memory.find(local_key)->bytes; }

  UnreliableSolo solo{QpType::ud};
};

TEST_F(DatagramReceiverTest, TellsWhereADatagramCameFrom) {
  solo.receive(100, 1);
  solo.receive(100, 2);
  give(8);
  give(9, {}, own_qkey, ud_send_only_imm);
  const auto completions = solo.completions();
  ASSERT_EQ(statuses(completions), (Statuses{{1, WcStatus::success}, {2, WcStatus::success}}));
  EXPECT_EQ(completions[0].byte_length, 48u);
  EXPECT_FALSE(completions[0].has_immediate);
  EXPECT_EQ(completions[1].byte_length, 49u);
  EXPECT_TRUE(completions[1].has_immediate);
  EXPECT_EQ(completions[1].immediate, 0xFEEDu);
  for (const Completion& completion : completions) {
    EXPECT_EQ(completion.opcode, WcOpcode::receive);
    EXPECT_TRUE(completion.has_grh);
    EXPECT_TRUE(completion.solicited);
    EXPECT_EQ(completion.source_qpn, peer_qpn);
    EXPECT_EQ(completion.qpn, qpn_of(0));
  }
  EXPECT_TRUE(solo.holds_pattern(local_key, 40, 9));
  EXPECT_EQ(solo.qp.counters().bytes_received, 17u);
}

TEST_F(DatagramReceiverTest, TheGrhAreaHoldsTheIpv4Header) {
  solo.receive(100, 1);
  give(9, {IpAddress::v4(192, 168, 7, 1), IpAddress::v4(10, 1, 2, 3), 0xB8, 61});
  const auto completions = solo.completions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_TRUE(completions[0].grh_is_ipv4);
  for (const std::byte b : buffer().first(20)) EXPECT_EQ(b, std::byte{0});
  iphdr ip{};
  std::memcpy(&ip, buffer().data() + 20, sizeof ip);
  EXPECT_EQ(ip.version, 4u);
  EXPECT_EQ(ip.ihl, 5u);
  EXPECT_EQ(ip.tos, 0xB8);
  EXPECT_EQ(ip.ttl, 61);
  EXPECT_EQ(ip.protocol, IPPROTO_UDP);
  EXPECT_EQ(ip.frag_off, __builtin_bswap16(0x4000));
  // IP, UDP, BTH, DETH, payload, pad, ICRC
  EXPECT_EQ(ip.tot_len, __builtin_bswap16(20 + 8 + 12 + 8 + 9 + 3 + 4));
  EXPECT_EQ(ip.saddr, __builtin_bswap32(0xC0A80701));
  EXPECT_EQ(ip.daddr, __builtin_bswap32(0x0A010203));
  EXPECT_EQ(one_s_complement_sum(buffer().subspan(20, 20)), 0xFFFF);
}

TEST_F(DatagramReceiverTest, TheChecksumIsRightForAnyHeader) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Prng random(seed);
    solo.receive(1100, seed);
    const auto byte = [&] { return static_cast<std::uint8_t>(random.next()); };
    give(static_cast<std::uint32_t>(random.below(1000)),
         {IpAddress::v4(byte(), byte(), byte(), byte()), IpAddress::v4(byte(), byte(), byte(), byte()),
          byte(), byte()});
    ASSERT_EQ(solo.completions().size(), 1u);
    ASSERT_EQ(one_s_complement_sum(buffer().subspan(20, 20)), 0xFFFF) << seed;
  }
}

TEST_F(DatagramReceiverTest, TheGrhAreaHoldsTheIpv6Header) {
  solo.receive(100, 1);
  IpAddress source, destination;
  for (std::uint8_t i = 0; i < 16; ++i) {
    source.bytes[i] = static_cast<std::uint8_t>(0xFD - i);
    destination.bytes[i] = static_cast<std::uint8_t>(0x20 + i);
  }
  give(9, {source, destination, 0xB8, 61});
  const auto completions = solo.completions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_FALSE(completions[0].grh_is_ipv4);
  ip6_hdr ip{};
  static_assert(sizeof ip == 40);
  std::memcpy(&ip, buffer().data(), sizeof ip);
  EXPECT_EQ(ip.ip6_flow, __builtin_bswap32(0x6B80'0000));
  EXPECT_EQ(ip.ip6_plen, __builtin_bswap16(8 + 12 + 8 + 9 + 3 + 4));
  EXPECT_EQ(ip.ip6_nxt, IPPROTO_UDP);
  EXPECT_EQ(ip.ip6_hlim, 61);
  EXPECT_EQ(std::memcmp(&ip.ip6_src, source.bytes.data(), 16), 0);
  EXPECT_EQ(std::memcmp(&ip.ip6_dst, destination.bytes.data(), 16), 0);
}

TEST_F(DatagramReceiverTest, AWrongQkeyIsCountedAndDropped) {
  solo.receive(100, 1);
  for (const std::uint32_t qkey : {own_qkey ^ 1, own_qkey | 0x8000'0000u, 0u, 0x8001'0000u})
    give(8, {}, qkey);
  EXPECT_TRUE(solo.completions().empty());
  EXPECT_EQ(solo.qp.counters().dropped_packets, 4u);
  give(8);
  EXPECT_EQ(solo.completions().size(), 1u);
}

TEST_F(DatagramReceiverTest, WhatDoesNotFitIsDroppedAndTheReceiveWaits) {
  give(8);  // no receive
  solo.receive(48, 1);
  const std::vector<std::byte> before(buffer().begin(), buffer().end());
  give(9);
  EXPECT_TRUE(solo.completions().empty());
  EXPECT_TRUE(std::equal(before.begin(), before.end(), buffer().begin()));
  EXPECT_EQ(solo.qp.counters().dropped_packets, 2u);
  give(8);
  EXPECT_EQ(statuses(solo.completions()), (Statuses{{1, WcStatus::success}}));
  solo.receive(39, 2);  // not even the GRH area
  give(0);
  EXPECT_TRUE(solo.completions().empty());
  EXPECT_EQ(solo.qp.state(), QpState::rts);
}

TEST_F(DatagramReceiverTest, MoreThanTheMtuIsDropped) {
  solo.receive(8000, 1);
  give(4097);
  EXPECT_TRUE(solo.completions().empty());
  give(4096);
  EXPECT_EQ(solo.completions().size(), 1u);
}

TEST_F(DatagramReceiverTest, AnEmptyDatagramIsADatagram) {
  solo.receive(40, 1);
  give(0);
  const auto completions = solo.completions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].byte_length, 40u);
}

TEST_F(DatagramReceiverTest, GrhAreaAndPayloadGoToAllPieces) {
  const std::array<Sge, 4> sges{Sge{local_base + 1000, 30, local_key}, Sge{local_base + 2000, 15, local_key},
                                Sge{local_base + 3000, 0, Key{}}, Sge{local_base + 4000, 50, local_key}};
  ASSERT_EQ(solo.qp.post_recv({1, sges}), PostResult::ok);
  give(20, {IpAddress::v4(1, 2, 3, 4), IpAddress::v4(5, 6, 7, 8), 0, 64});
  ASSERT_EQ(solo.completions().size(), 1u);
  EXPECT_EQ(load_u8(buffer().data() + 1020), 0x45);
  const Bytes sent = solo.payload(20);
  EXPECT_TRUE(std::equal(sent.begin(), sent.begin() + 5, buffer().begin() + 2010));
  EXPECT_TRUE(std::equal(sent.begin() + 5, sent.end(), buffer().begin() + 4000));
}

TEST_F(DatagramReceiverTest, AReceiveThatCannotBeWrittenStopsTheQueuePair) {
  solo.receive(100, 1, read_only_key);
  solo.receive(100, 2);
  give(8);
  EXPECT_EQ(statuses(solo.completions()),
            (Statuses{{1, WcStatus::local_protection_error}, {2, WcStatus::flushed}}));
  EXPECT_EQ(solo.qp.state(), QpState::err);
}

TEST(DatagramReceiverShared, TooLongEndsTheRequestWithAnError) {
  SharedReceiveQueue shared(4, 1, no_limit, nullptr);
  UnreliableSolo solo(QpType::ud, QpState::rts, &shared);
  for (std::uint64_t id = 1; id <= 2; ++id) {
    const Sge sge{local_base, 48, local_key};
    ASSERT_EQ(shared.post({id, std::span(&sge, 1)}), PostResult::ok);
  }
  solo.packet(ud_send_only, Psn{1}, 9);
  solo.packet(ud_send_only, Psn{2}, 8);
  EXPECT_EQ(statuses(solo.completions()),
            (Statuses{{1, WcStatus::local_length_error}, {2, WcStatus::success}}));
  EXPECT_EQ(solo.qp.state(), QpState::rts);
}

}  // namespace
}  // namespace beeline::proto::testing
