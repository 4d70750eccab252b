// Trains: where they may leave, how they are sent and taken, and what hostile ones do.
#include "port/udp/trains.h"

#include <gmock/gmock.h>
#include <netinet/udp.h>
#include <sys/mman.h>

#include "base/random.h"
#include "port/udp/handover.h"
#include "port/udp/raw_socket.h"
#include "port/udp/receive_batch.h"
#include "port/udp/steering.h"
#include "port/udp/test_support.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

namespace beeline::port::test {
namespace {

using ::testing::HasSubstr;

// --- where trains may leave ---

CuttingFacts device(const char* driver, bool cuts, bool merges = false) {
  return {false, true, cuts, merges, driver, {}};
}

TEST(TrainRule, TheSettingComesFirst) {
  const CuttingFacts veth = device("veth", true), card = device("mlx5_core", true);
  EXPECT_FALSE(judge_trains(Segmentation::off, true, true, "veth0", veth).allowed);
  EXPECT_FALSE(judge_trains(Segmentation::off, true, false, "", {}).allowed);
  EXPECT_TRUE(judge_trains(Segmentation::on, true, true, "eth0", card).allowed);
  EXPECT_FALSE(judge_trains(Segmentation::on, false, true, "veth0", veth).allowed) << "the kernel cannot";
}

TEST(TrainRule, WhatTheKernelCutsIsKnownAndWhatACardCutsIsNot) {
  const auto rule = [](const CuttingFacts& facts) {
    return judge_trains(Segmentation::automatic, true, true, "eth0", facts);
  };
  for (const char* driver : {"veth", "tun", "bridge", "dummy"})
    EXPECT_TRUE(rule(device(driver, true)).allowed) << driver;
  EXPECT_TRUE(rule(device("mlx5_core", false)).allowed);
  CuttingFacts loopback;
  loopback.loopback = true;
  EXPECT_TRUE(rule(loopback).allowed);
  const TrainRule card = rule(device("mlx5_core", true));
  EXPECT_FALSE(card.allowed);
  EXPECT_THAT(card.reason, HasSubstr("ethtool -K eth0 tx-udp-segmentation off"));
  EXPECT_FALSE(rule({}).allowed) << "nothing is known";
  CuttingFacts bridge = device("bridge", true);
  bridge.behind_bridge = "eth7";
  EXPECT_FALSE(rule(bridge).allowed);
  EXPECT_THAT(rule(bridge).reason, HasSubstr("ethtool -K eth7"));
  EXPECT_TRUE(judge_trains(Segmentation::automatic, true, false, "eth0", device("mlx5_core", true)).allowed)
      << "IPv6 has no identification";
}

TEST(TrainRule, OnlyDevicesOfThisHostThatMergeNothingShowTrainsAsTheyWereSent) {
  EXPECT_TRUE(merges_nothing(device("veth", true)));
  EXPECT_FALSE(merges_nothing(device("veth", true, true)));
  EXPECT_FALSE(merges_nothing(device("bridge", true)));
  EXPECT_FALSE(merges_nothing(device("mlx5_core", false)));
  EXPECT_FALSE(merges_nothing({}));
  EXPECT_TRUE(merges_nothing(cutting_facts(own_address(1)))) << "the loopback interface";
}

TEST(TrainRule, OfThisHostsLoopback) {
  const TrainRule rule = train_rule(Segmentation::automatic, own_address(1));
  EXPECT_EQ(rule.allowed, kernel_cuts_trains()) << rule.reason;
}

// --- sending and taking ---

class Trains : public ::testing::Test {
 protected:
  void SetUp() override {
    port_ = open_port(address_);
    ASSERT_NE(port_, nullptr);
    source_port_ = *port_->source_port(address_, 7);
  }
  OutPacket packet(std::size_t number, std::uint8_t place) {
    OutPacket out;
    out.source = out.destination = address_;
    out.source_port = source_port_;
    out.pieces = {&pieces_[number], 1};
    out.place = place;
    return out;
  }
  // Packet i has number i in it.
  void fill(std::size_t packets) {
    bytes_.assign(packets, {});
    pieces_.resize(packets);
    for (std::size_t i = 0; i < packets; ++i) {
      bytes_[i] = packet_for(port_->slot(), static_cast<std::uint32_t>(i));
      pieces_[i] = {bytes_[i].data(), bytes_[i].size()};
    }
  }
  std::vector<OutPacket> train(std::size_t packets) {
    fill(packets);
    std::vector<OutPacket> out;
    for (std::size_t i = 0; i < packets; ++i) out.push_back(packet(i, static_cast<std::uint8_t>(i)));
    return out;
  }
  void expect_in_order(const std::vector<Copy>& got, std::size_t count) {
    ASSERT_EQ(got.size(), count);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(got[i].bytes.size(), sizeof(Packet));
      EXPECT_EQ(load_be32(got[i].bytes.data() + 16), i);
    }
  }

  IpAddress address_ = own_address(9);
  std::unique_ptr<Port> port_;
  std::uint16_t source_port_ = 0;
  std::vector<Packet> bytes_;
  std::vector<iovec> pieces_;
};

TEST_F(Trains, AreSentInOnePieceAndComeAsPacketsWithTheirNumbers) {
  auto out = train(train_packets_max);
  ASSERT_EQ(port_->send(out), out.size());
  for (const OutPacket& each : out) EXPECT_EQ(each.status, SendStatus::sent);
  EXPECT_EQ(port_->counters().trains_sent, 1u);
  EXPECT_EQ(port_->counters().packets_in_trains, train_packets_max);
  const auto got = receive_copies(*port_, out.size());
  expect_in_order(got, out.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].packet.ip_id, i) << "what the sender took for its ICRC";
    EXPECT_FALSE(got[i].packet.ip_header_seen);
  }
  EXPECT_EQ(port_->counters().trains_received, 1u);
  EXPECT_EQ(port_->counters().datagrams_received, train_packets_max);
}

TEST_F(Trains, MayFollowOneAnotherAndSinglePackets) {
  fill(7);
  std::vector<OutPacket> out;
  const std::uint8_t places[] = {0, 0, 1, 2, 0, 1, 0};
  for (std::size_t i = 0; i < 7; ++i) out.push_back(packet(i, places[i]));
  ASSERT_EQ(port_->send(out), 7u);
  EXPECT_EQ(port_->counters().trains_sent, 2u);
  EXPECT_EQ(port_->counters().packets_in_trains, 5u);
  expect_in_order(receive_copies(*port_, 7), 7);
}

// A call takes 64 packets; what lies across the border is not cut there.
TEST_F(Trains, AreNotTornWhereASystemCallEnds) {
  fill(90);
  std::vector<OutPacket> out;
  for (std::size_t i = 0; i < 90; ++i)
    out.push_back(packet(i, static_cast<std::uint8_t>(i < 50 ? 0 : i - 50)));
  ASSERT_EQ(port_->send(out), 90u);
  EXPECT_EQ(port_->counters().trains_sent, 1u);
  EXPECT_EQ(port_->counters().packets_in_trains, 40u);
  expect_in_order(receive_copies(*port_, 90), 90);
}

TEST_F(Trains, AFaultyOneIsRefusedWithAllBehindItAndAPartOnItsOwnHasTheFault) {
  void* const gone = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  fill(6);
  pieces_[3].iov_base = gone;
  const std::uint8_t places[] = {0, 0, 1, 2, 3, 0};
  std::vector<OutPacket> out;
  for (std::size_t i = 0; i < 6; ++i) out.push_back(packet(i, places[i]));
  EXPECT_EQ(port_->send(out), 1u);
  EXPECT_EQ(out[0].status, SendStatus::sent);
  for (std::size_t i = 1; i < 6; ++i) EXPECT_EQ(out[i].status, SendStatus::train_refused) << i;
  EXPECT_EQ(port_->counters().trains_refused, 1u);
  for (std::size_t i = 1; i < 6; ++i) out[i].place = 0;
  EXPECT_EQ(port_->send(std::span(out).subspan(1)), 4u);
  for (std::size_t i = 1; i < 6; ++i)
    EXPECT_EQ(out[i].status, i == 3 ? SendStatus::fault : SendStatus::sent) << i;
  EXPECT_GT(port_->train_max(address_), 1u) << "memory was at fault, not trains";
  ::munmap(gone, 4096);
}

TEST_F(Trains, AreLeftOutWhereTheSettingSaysSo) {
  const auto port = make_udp_port(IcrcCheck::plain, Segmentation::off);
  ASSERT_TRUE(port);
  ASSERT_TRUE((*port)->open_address(own_address(10)));
  EXPECT_EQ((*port)->train_max(own_address(10)), 1u);
  EXPECT_EQ((*port)->train_max(own_address(11)), 1u) << "not open";
}

// The caller takes three at a time: nothing is lost, nothing overwritten, and nobody sleeps on the rest.
TEST_F(Trains, AreDeliveredAsFastAsTheyAreAskedFor) {
  auto first = train(60);
  ASSERT_EQ(port_->send(first), 60u);
  ASSERT_EQ(port_->send(first), 60u);
  std::array<InPacket, 3> out;
  std::uint32_t taken = 0;
  const TimePoint end = port_->now() + patience;
  while (taken < 120 && port_->now() < end) {
    const std::size_t filled = port_->receive(out);
    for (std::size_t i = 0; i < filled; ++i)
      EXPECT_EQ(load_be32(out[i].bytes.data() + 16), (taken + i) % 60) << taken;
    taken += static_cast<std::uint32_t>(filled);
    if (taken > 0 && taken % 60 != 0) {
      pollfd ready{port_->wait_descriptor(), POLLIN, 0};
      EXPECT_EQ(::poll(&ready, 1, 0), 1) << "there is more, at " << taken;
      port_->wait(TimePoint::never());
    }
  }
  EXPECT_EQ(taken, 120u);
}

// --- from elsewhere ---

// A datagram that is cut every `cut` bytes.
void send_train(Stranger& stranger, const IpAddress& to, Bytes bytes, std::uint16_t cut) {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  SocketAddress name;
  msghdr header{};
  header.msg_name = &name;
  header.msg_namelen = fill(name, to, roce_port, 0);
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof cut)> control{};
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* const item = CMSG_FIRSTHDR(&header);
  item->cmsg_level = IPPROTO_UDP;
  item->cmsg_type = UDP_SEGMENT;
  item->cmsg_len = CMSG_LEN(sizeof cut);
  std::memcpy(CMSG_DATA(item), &cut, sizeof cut);
  ASSERT_EQ(::sendmsg(stranger.get(), &header, 0), static_cast<ssize_t>(bytes.size()))
      << std::strerror(errno);
}

Contents joined(std::initializer_list<Packet> packets) {
  Contents bytes;
  for (const Packet& packet : packets) bytes.insert(bytes.end(), packet.begin(), packet.end());
  return bytes;
}

// Steering looks at the first packet of a train only.
TEST_F(Trains, PacketsOfOtherSlotsInThemAreHandedOver) {
  auto other = open_port(address_);
  ASSERT_NE(other, nullptr);
  const Slot mine = port_->slot(), theirs = other->slot();
  Stranger stranger(address_);
  std::vector<std::uint32_t> of_mine, of_theirs;
  const auto take = [](Port& port, std::vector<std::uint32_t>& numbers) {
    std::array<InPacket, 32> out;
    port.wait(port.now());
    for (std::size_t n = port.receive(out), i = 0; i < n; ++i) {
      EXPECT_EQ(load_u8(out[i].bytes.data() + 5), port.slot().value);
      numbers.push_back(load_be32(out[i].bytes.data() + 16));
    }
  };
  send_train(stranger, address_, joined({packet_for(mine, 1), packet_for(theirs, 2), packet_for(mine, 3)}),
             sizeof(Packet));
  const TimePoint end = port_->now() + patience;
  while ((of_mine.size() < 2 || of_theirs.empty()) && port_->now() < end) {
    take(*port_, of_mine);
    take(*other, of_theirs);
  }
  EXPECT_EQ(of_mine, (std::vector<std::uint32_t>{1, 3}));
  EXPECT_EQ(of_theirs, (std::vector<std::uint32_t>{2}));
}

// The strict process's raw socket has not seen what lies behind a packet of another slot.
TEST_F(Trains, AStrictProcessGetsItsPacketsOutOfOthersTrains) {
  if (!may_see_ip_headers()) return (void)std::puts("needs CAP_NET_RAW: not run");
  auto strict = open_port(address_, IcrcCheck::strict);
  ASSERT_NE(strict, nullptr);
  Stranger stranger(address_);
  const Contents bytes = joined({packet_for(port_->slot(), 1), packet_for(strict->slot(), 2)});
  bool got = false;
  // Again, as long as indices are being learnt: the strict one's UDP socket drops it when steered wrongly.
  for (const TimePoint end = port_->now() + patience; !got && port_->now() < end;) {
    send_train(stranger, address_, bytes, sizeof(Packet));
    pump(*port_, 10);
    std::array<InPacket, 32> out;
    strict->wait(strict->now());
    for (std::size_t n = strict->receive(out), i = 0; i < n; ++i)
      got = got || load_be32(out[i].bytes.data() + 16) == 2;
  }
  EXPECT_TRUE(got);
}

TEST_F(Trains, OfAnySizesAreTakenAsTheyWereCut) {
  Stranger stranger(address_);
  Prng prng(5);
  Contents bytes(65'507);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.below(256));
  for (const std::size_t cut : {1u, 5u, 6u, 31u, 1024u, 4160u, 4161u, 30'000u}) {
    const std::size_t total = std::min<std::size_t>(bytes.size(), cut * 20 - cut / 2);
    // To us, or too short to be anybody's.
    for (std::size_t at = 0; at < total; at += cut) {
      store_u8(bytes.data() + at, 4);
      if (at + 5 < total) store_u8(bytes.data() + at + 5, port_->slot().value);
      if (at + 6 < total) store_u8(bytes.data() + at + 6, 7);  // not queue pair 1
    }
    const std::uint64_t received = port_->counters().datagrams_received,
                        cut_short = port_->counters().truncated;
    send_train(stranger, address_, Bytes(bytes).first(total), static_cast<std::uint16_t>(cut));
    const std::size_t pieces = (total + cut - 1) / cut;
    const auto got = receive_copies(
        *port_,
        cut > datagram_bytes_max ? (total % cut != 0 && total % cut <= datagram_bytes_max ? 1 : 0) : pieces);
    ASSERT_TRUE(pump_until(*port_, [&] { return port_->counters().datagrams_received == received + pieces; }))
        << cut;
    std::size_t at = 0;
    if (cut <= datagram_bytes_max) {
      for (const Copy& each : got) {
        EXPECT_TRUE(std::equal(each.bytes.begin(), each.bytes.end(),
                               bytes.begin() + static_cast<std::ptrdiff_t>(at)));
        at += each.bytes.size();
      }
      EXPECT_EQ(at, total) << cut;
    } else {
      EXPECT_GT(port_->counters().truncated, cut_short) << cut;
    }
  }
}

TEST(ReceiveBatch, ADatagramIsCutAtAnySizeTheKernelMightSay) {
  std::array<std::byte, 100> bytes{};
  for (std::size_t length = 0; length <= bytes.size(); ++length)
    for (const unsigned cut : {0u, 1u, 7u, 50u, 99u, 100u, 101u, 65'535u}) {
      ReceiveBatch::Datagram datagram;
      datagram.bytes = MutableBytes(bytes).first(length);
      datagram.segment_bytes = static_cast<std::uint16_t>(cut);
      std::size_t total = 0;
      for (std::size_t i = 0; i < datagram.segments(); ++i) {
        EXPECT_EQ(datagram.segment(i).data(), bytes.data() + total);
        total += datagram.segment(i).size();
      }
      EXPECT_EQ(total, length) << cut;
    }
}

}  // namespace
}  // namespace beeline::port::test
