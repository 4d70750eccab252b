#include <fmt/format.h>
#include <gmock/gmock.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sys/mman.h>

#include <thread>

#include "port/udp/handover.h"
#include "port/udp/test_support.h"

namespace beeline::port::test {
namespace {

const IpAddress ipv6_loopback = *parse_address("::1");

OutPacket out_packet(const IpAddress& from, const IpAddress& to, std::uint16_t source_port,
                     std::span<const iovec> pieces) {
  OutPacket packet;
  packet.source = from;
  packet.destination = to;
  packet.source_port = source_port;
  packet.pieces = pieces;
  return packet;
}

iovec piece(Packet& packet) { return {packet.data(), packet.size()}; }

class UdpPortOn : public ::testing::TestWithParam<const char*> {
 protected:
  IpAddress address_ = std::string(GetParam()) == "IPv6" ? ipv6_loopback : own_address(1);
};
INSTANTIATE_TEST_SUITE_P(Families, UdpPortOn, ::testing::Values("IPv4", "IPv6"),
                         [](const auto& family) { return std::string(family.param); });

TEST_P(UdpPortOn, SendsAGatheredDatagramThatArrivesWhole) {
  auto port = open_port(address_);
  const std::uint16_t source_port = *port->source_port(address_, 7);
  Packet head = packet_for(port->slot(), 41);
  std::vector<std::byte> tail(4096 - 12, std::byte{0x5A});
  const iovec pieces[] = {piece(head), {tail.data(), tail.size()}};
  OutPacket packet = out_packet(address_, address_, source_port, pieces);
  ASSERT_EQ(port->send({&packet, 1}), 1u);
  EXPECT_EQ(packet.status, SendStatus::sent);

  const auto got = receive_copies(*port, 1);
  ASSERT_EQ(got.size(), 1u);
  const Bytes bytes = got[0].bytes;
  ASSERT_EQ(bytes.size(), head.size() + tail.size());
  EXPECT_TRUE(std::equal(head.begin(), head.end(), bytes.begin()));
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), bytes.begin() + head.size()));
  EXPECT_EQ(got[0].packet.source, address_);
  EXPECT_EQ(got[0].packet.destination, address_);
  EXPECT_EQ(got[0].packet.source_port, source_port);
  EXPECT_FALSE(got[0].packet.congestion_experienced);
  EXPECT_EQ(port->counters().datagrams_sent, 1u);
  EXPECT_EQ(port->counters().datagrams_received, 1u);
}

TEST_P(UdpPortOn, ReportsCongestionMarks) {
  auto port = open_port(address_);
  Stranger stranger(address_);
  stranger.set(address_.is_v4() ? IPPROTO_IP : IPPROTO_IPV6, address_.is_v4() ? IP_TOS : IPV6_TCLASS, 3);
  stranger.send(address_, packet_for(port->slot()));
  const auto got = receive_copies(*port, 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_TRUE(got[0].packet.congestion_experienced);
}

TEST(UdpPort, DropsAndCountsWhatIsLongerThanAnyPacket) {
  const IpAddress address = own_address(11);
  auto port = open_port(address);
  Stranger stranger(address);
  std::vector<std::byte> too_long(datagram_bytes_max + 1);
  store_u8(too_long.data() + 5, port->slot().value);
  stranger.send(address, too_long);
  stranger.send(address, packet_for(port->slot(), 1));
  const auto got = receive_copies(*port, 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].bytes.size(), sizeof(Packet));
  EXPECT_EQ(port->counters().truncated, 1u);
}

TEST(UdpPort, PassesUpDatagramsTooShortForAnOwner) {
  const IpAddress address = own_address(2);
  const auto first = claim_slot();  // so that ours is not 0, which a careless read might find
  auto port = open_port(address);
  Stranger stranger(address);
  for (std::size_t length = 0; length <= 5; ++length)
    stranger.send(address, std::vector<std::byte>(length, std::byte{0xFF}));
  const auto got = receive_copies(*port, 6);
  ASSERT_EQ(got.size(), 6u);
  for (std::size_t length = 0; length <= 5; ++length) EXPECT_EQ(got[length].bytes.size(), length);
}

TEST(UdpPort, TakesIpv6WithoutAChecksumAsRocePeersSendIt) {
  auto port = open_port(ipv6_loopback);
  Stranger stranger(ipv6_loopback);
  constexpr int no_check6_tx = 101;  // UDP_NO_CHECK6_TX of <linux/udp.h>
  stranger.set(IPPROTO_UDP, no_check6_tx, 1);
  stranger.send(ipv6_loopback, packet_for(port->slot(), 9));
  EXPECT_EQ(receive_copies(*port, 1).size(), 1u);
}

TEST(UdpPort, OpeningTwiceIsOpeningOnce) {
  const IpAddress address = own_address(3);
  auto port = open_port(address);
  const std::size_t before = open_descriptors();
  EXPECT_TRUE(port->open_address(address));
  EXPECT_EQ(open_descriptors(), before);
}

TEST(UdpPort, RefusesAddressesThatAreNotOnThisHostOrNoInterfaceHas) {
  auto port = make_udp_port();
  ASSERT_TRUE(port);
  const auto elsewhere = (*port)->open_address(IpAddress::v4(203, 0, 113, 77));
  ASSERT_FALSE(elsewhere);
  EXPECT_EQ(elsewhere.error().code, Errc::not_found);
  EXPECT_THAT(elsewhere.error().message, ::testing::HasSubstr("203.0.113.77"));
  for (const char* text : {"fe80::dead:beef:dead:beef", "2001:db8::77"}) {
    const auto result = (*port)->open_address(*parse_address(text));
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().code, Errc::not_found);
  }
  for (const char* text : {"0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "ff02::1"}) {
    const auto result = (*port)->open_address(*parse_address(text));
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().code, Errc::invalid_argument) << "never the wildcard: " << text;
  }
  EXPECT_EQ((*port)->source_port(IpAddress::v4(203, 0, 113, 77), 1).error().code, Errc::not_found);
}

TEST(UdpPort, AFaultingPieceCostsItsOwnPacketOnly) {
  const IpAddress address = own_address(4);
  auto port = open_port(address);
  const std::uint16_t source_port = *port->source_port(address, 1);
  void* const gone = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  Packet first = packet_for(port->slot(), 1), second = packet_for(port->slot(), 2),
         third = packet_for(port->slot(), 3);
  const iovec one[] = {piece(first)}, two[] = {piece(second), {gone, 4096}}, three[] = {piece(third)};
  OutPacket packets[] = {out_packet(address, address, source_port, one),
                         out_packet(address, address, source_port, two),
                         out_packet(address, address, source_port, three)};
  EXPECT_EQ(port->send(packets), 2u);
  EXPECT_EQ(packets[0].status, SendStatus::sent);
  EXPECT_EQ(packets[1].status, SendStatus::fault);
  EXPECT_EQ(packets[2].status, SendStatus::sent);
  const auto got = receive_copies(*port, 2);
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(load_be32(got[0].bytes.data() + 16), 1u);
  EXPECT_EQ(load_be32(got[1].bytes.data() + 16), 3u);
  ::munmap(gone, 4096);
}

TEST(UdpPort, CountsWhatCannotBeSentAndGoesOn) {
  const IpAddress address = own_address(5);
  auto port = open_port(address);
  const std::uint16_t source_port = *port->source_port(address, 1);
  Packet packet = packet_for(port->slot());
  const iovec pieces[] = {piece(packet)};
  OutPacket packets[] = {
      out_packet(address, IpAddress::v4(255, 255, 255, 255), source_port, pieces),  // broadcast: EACCES
      out_packet(address, ipv6_loopback, source_port, pieces),                      // the other family
      out_packet(address, address, static_cast<std::uint16_t>(source_port + 1), pieces),
      out_packet(own_address(6), address, source_port, pieces),
      out_packet(address, address, source_port, pieces),
  };
  EXPECT_EQ(port->send(packets), 1u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(packets[i].status, SendStatus::failed) << i;
  EXPECT_EQ(packets[4].status, SendStatus::sent);
  EXPECT_EQ(port->counters().send_failures, 4u);
}

TEST(UdpPort, KeepsPacketsForASmallSpan) {
  const IpAddress address = own_address(7);
  auto port = open_port(address);
  Stranger stranger(address);
  for (std::uint32_t i = 0; i < 100; ++i) stranger.send(address, packet_for(port->slot(), i));
  EXPECT_EQ(port->receive({}), 0u);
  std::array<InPacket, 3> out;
  std::uint32_t expected = 0;
  const TimePoint deadline = port->now() + patience;
  while (expected < 100 && port->now() < deadline) {
    const std::size_t filled = port->receive(out);
    for (std::size_t i = 0; i < filled; ++i) EXPECT_EQ(load_be32(out[i].bytes.data() + 16), expected++);
  }
  EXPECT_EQ(expected, 100u);
}

TEST(UdpPort, WakesFromAnotherThread) {
  const IpAddress address = own_address(8);
  auto port = open_port(address);
  receive_copies(*port, 0);
  for (int round = 0; round < 50; ++round) {
    std::thread waker([&] { port->wake(); });
    const TimePoint deadline = port->now() + patience;
    std::array<InPacket, 8> out;
    bool woken = false;
    // The port's own probes may end a wait, too; a wake that got lost would not.
    while (!woken && port->now() < deadline) {
      port->wait(deadline);
      woken = port->receive(out) == 0;
    }
    EXPECT_LT(port->now(), deadline);
    waker.join();
  }
}

TEST(UdpPort, AWakeBeforeTheWaitIsNotLost) {
  auto port = make_udp_port();
  ASSERT_TRUE(port);
  const TimePoint deadline = (*port)->now() + patience;
  (*port)->wake();
  (*port)->wake();
  (*port)->wait(deadline);
  EXPECT_LT((*port)->now(), deadline);
  // And it was taken: nothing is readable now.
  pollfd ready{(*port)->wait_descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 0), 0);
}

TEST(UdpPort, WaitEndsAtItsDeadline) {
  auto port = make_udp_port();
  ASSERT_TRUE(port);
  const TimePoint deadline = (*port)->now() + 3ms;
  (*port)->wait(deadline);
  EXPECT_GE((*port)->now(), deadline);
  (*port)->wait(deadline - 1s);  // long past: returns at once
}

TEST(UdpPort, OpensAndWakesWhileAnotherThreadWaitsAndReceives) {
  auto port = make_udp_port();
  ASSERT_TRUE(port);
  std::atomic<bool> stop = false;
  std::thread receiver([&] {
    std::array<InPacket, 8> out;
    while (!stop) {
      (*port)->receive(out);
      (*port)->wait((*port)->now() + 10ms);
    }
  });
  for (std::uint8_t i = 0; i < 8; ++i) {
    const IpAddress address = own_address(i);
    ASSERT_TRUE((*port)->open_address(address));
    for (std::uint32_t flow = 0; flow < 4; ++flow) EXPECT_TRUE((*port)->source_port(address, flow));
    (*port)->wake();
  }
  stop = true;
  receiver.join();
}

TEST(UdpPort, ClosesEverything) {
  const IpAddress address = own_address(9);
  { auto warm_up = open_port(address); }
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 3; ++i) {
    auto one = open_port(address), two = open_port(address);
    for (std::uint32_t flow = 0; flow < 10; ++flow) EXPECT_TRUE(one->source_port(address, flow));
    // Packets for each, so that hand-over links exist.
    Stranger stranger(address);
    for (int n = 0; n < 4; ++n) {
      stranger.send(address, packet_for(one->slot()));
      stranger.send(address, packet_for(two->slot()));
    }
    std::array<InPacket, 32> out;
    std::size_t got = 0;
    ASSERT_TRUE(pump_until(*one, [&] { return (got += two->receive(out)) >= 4; }));
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(UdpPort, SaysWhatTheReceiveBufferReallyHolds) {
  const IpAddress address = own_address(10);
  auto port = open_port(address);
  const std::size_t budget = port->receive_buffer_bytes();
  ASSERT_GT(budget, 0u);
  // Send that much, unread, at several packet sizes: nothing may be lost.
  for (const std::size_t size : {64u, 512u, 1024u + 16, 4096u + 16}) {
    Stranger stranger(address);
    std::vector<std::byte> packet(size);
    store_u8(packet.data() + 5, port->slot().value);
    const std::size_t count = budget / std::max<std::size_t>(size, 512);
    for (std::size_t i = 0; i < count; ++i) stranger.send(address, packet);
    EXPECT_EQ(receive_copies(*port, count).size(), count) << size;
  }
}

}  // namespace
}  // namespace beeline::port::test
