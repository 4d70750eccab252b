// ToS or traffic class, TTL or hop limit: as wanted on what leaves, and shown of what arrives.
#include <array>

#include "port/udp/flow_sockets.h"
#include "port/udp/test_support.h"

namespace beeline::port::test {
namespace {

const IpAddress ipv6_loopback = *parse_address("::1");

class Marks : public ::testing::TestWithParam<const char*> {
 protected:
  InPacket send_with(IpMarks marks) {
    const auto source_port = port_->source_port(address_, 7, marks);
    EXPECT_TRUE(source_port);
    Packet bytes = packet_for(port_->slot());
    const iovec pieces[] = {{bytes.data(), bytes.size()}};
    OutPacket packet;
    packet.source = packet.destination = address_;
    packet.source_port = *source_port;
    packet.pieces = pieces;
    EXPECT_EQ(port_->send({&packet, 1}), 1u);
    const auto got = receive_copies(*port_, 1);
    return got.empty() ? InPacket{} : got[0].packet;
  }
  IpAddress address_ = std::string(GetParam()) == "IPv6" ? ipv6_loopback : own_address(1);
  std::unique_ptr<Port> port_ =
      open_port(address_, std::string(GetParam()) == "IPv4plain" ? IcrcCheck::plain : IcrcCheck::automatic);
};
INSTANTIATE_TEST_SUITE_P(Families, Marks, ::testing::Values("IPv4", "IPv4plain", "IPv6"),
                         [](const auto& family) { return std::string(family.param); });

TEST_P(Marks, AreOnThePacketsOfTheirPort) {
  port_->show_hop_limits(address_);
  EXPECT_EQ(send_with({0x68, 77}).marks, (IpMarks{0x68, 77}));
  EXPECT_EQ(send_with({0xFC, 255}).marks, (IpMarks{0xFC, 255}));
  const IpMarks plain = send_with({}).marks;
  EXPECT_EQ(plain.traffic_class, 0);
  EXPECT_GT(plain.hop_limit, 0) << "the host's own";
  EXPECT_EQ(send_with({0x68, 77}).marks, (IpMarks{0x68, 77})) << "as before";
}

TEST_P(Marks, OfEqualFlowsDifferByThePort) {
  const auto plain = port_->source_port(address_, 7), marked = port_->source_port(address_, 7, {0x68, 0});
  ASSERT_TRUE(plain && marked);
  EXPECT_NE(*plain, *marked);
  EXPECT_EQ(*port_->source_port(address_, 7), *plain);
  EXPECT_EQ(*port_->source_port(address_, 7, {0x68, 0}), *marked);
}

TEST(MarkedFlows, AreBounded) {
  FlowSockets flows(own_address(3), 0);
  for (std::uint32_t flow = 0; flow < 2 * FlowSockets::sockets_max; ++flow)
    ASSERT_TRUE(flows.port_for(flow, {0x20, 0})) << "one of those that are there";
  std::size_t more = 0;
  for (int traffic_class = 1; traffic_class < 256; ++traffic_class)
    for (std::uint32_t flow = 0; flow < 2; ++flow)
      more += flows.port_for(flow, {static_cast<std::uint8_t>(traffic_class), 9}) ? 1u : 0u;
  EXPECT_EQ(more, FlowSockets::all_sockets_max - FlowSockets::sockets_max);
  EXPECT_EQ(flows.port_for(5, {0x99, 99}).error().code, Errc::resource_exhausted);
  EXPECT_TRUE(flows.port_for(70'000, {0x20, 0})) << "what is open stays good";
}

}  // namespace
}  // namespace beeline::port::test
