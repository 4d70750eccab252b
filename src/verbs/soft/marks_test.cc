// What an address handle says of traffic class and hop limit, and what a datagram's receiver is told.
#include <array>
#include <cstring>

#include "verbs/soft/testing/kit.h"

namespace beeline::verbs::soft {
namespace {

class DatagramMarks : public SoftVerbs {
 protected:
  // The header area of a datagram that went with this class and limit.
  std::array<std::uint8_t, grh_bytes> header_of(std::uint8_t traffic_class, std::uint8_t hop_limit) {
    ibv_ah_attr attr = address_of_this_host();
    attr.grh.traffic_class = traffic_class;
    attr.grh.hop_limit = hop_limit;
    EXPECT_EQ(provider().destroy_ah(a_->ah), 0);
    a_->ah = provider().create_ah(a_->pd, &attr);
    EXPECT_NE(a_->ah, nullptr) << provider().why();
    EXPECT_EQ(b_->post_receive(1, 0, 128), 0);
    EXPECT_EQ(Request(IBV_WR_SEND, *a_, 0, 64).post(*a_), 0);
    a_->wait();
    b_->wait();
    std::array<std::uint8_t, grh_bytes> header{};
    std::memcpy(header.data(), b_->buffer.data(), header.size());
    return header;
  }
  // Of IPv4 the header is the last 20 bytes.
  bool is_v4() const { return gid_.raw[10] == 0xFF; }
  std::uint8_t class_in(const std::array<std::uint8_t, grh_bytes>& header) const {
    if (is_v4()) return header[21];
    return static_cast<std::uint8_t>(header[0] << 4 | header[1] >> 4);
  }
  std::uint8_t limit_in(const std::array<std::uint8_t, grh_bytes>& header) const {
    return is_v4() ? header[28] : header[7];
  }
};

TEST_F(DatagramMarks, GoWithThePacketAndAreSeenInItsHeader) {
  pair_of(IBV_QPT_UD);
  const auto plain = header_of(0, 64);
  EXPECT_EQ(class_in(plain), 0);
  const auto marked = header_of(0x68, 77);
  EXPECT_EQ(class_in(marked), 0x68);
  EXPECT_EQ(limit_in(marked), 77);
  EXPECT_EQ(limit_in(header_of(0, 255)), 255);
  EXPECT_EQ(header_of(0, 64), plain) << "as before";
  // What the ibv_*_pingpong ask for; the kernel's cards do not keep such packets from crossing routers,
  // either.
  EXPECT_EQ(header_of(0, 1), plain);
}

}  // namespace
}  // namespace beeline::verbs::soft
