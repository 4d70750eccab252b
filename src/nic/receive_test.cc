// What the card makes of what arrives, in virtual time: how strictly it is checked, and that
// nothing is repeated whose answer has already come.
#include <gtest/gtest.h>

#include "nic/card_fixture.h"
#include "nic/fake_network.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace beeline::nic::test {
namespace {

using proto::PostResult;
using proto::WcStatus;
using proto::WrOpcode;

constexpr IpAddress left_address = IpAddress::v4(10, 0, 0, 1);
constexpr IpAddress right_address = IpAddress::v4(10, 0, 0, 2);
constexpr std::uint16_t source_port = 50000;

// A packet for no queue pair, whose ICRC is right for that IP identification.
std::vector<std::byte> packet_with_identification(std::uint16_t ip_id) {
  std::vector<std::byte> bytes(12 + 4 + 4);
  store_u8(bytes.data(), 0x11);          // RC acknowledge
  store_be16(bytes.data() + 2, 0xFFFF);  // P_Key
  store_u8(bytes.data() + 5, 2);         // the slot of the right card
  store_u8(bytes.data() + 12, 0x1F);
  wire::IpUdp ip_udp{left_address, right_address, source_port};
  ip_udp.ip_id = ip_id;
  ip_udp.udp_payload_bytes = static_cast<std::uint16_t>(bytes.size());
  wire::Icrc icrc(ip_udp);
  icrc.update_headers(Bytes(bytes).first(bytes.size() - 4));
  wire::store_icrc(bytes.data() + bytes.size() - 4, icrc.value());
  return bytes;
}

class ReceiveTest : public ::testing::Test {
 protected:
  std::unique_ptr<Card> make_card(std::uint8_t slot, const IpAddress& address) {
    const port::Interface interface = interface_with(address);
    return value_of(Card::create(Config{}, network_.make_port(slot), {&interface, 1}, false));
  }
  void arrive(Bytes bytes, std::optional<std::uint16_t> ip_id) {
    network_.inject(left_address, right_address, source_port, bytes, ip_id);
    right_.poll();
  }

  FakeNetwork network_;
  std::unique_ptr<Card> left_card_ = make_card(1, left_address), right_card_ = make_card(2, right_address);
  End left_{*left_card_}, right_{*right_card_};
};

TEST_F(ReceiveTest, WithoutTheIdentificationAnyThatExplainsTheIcrcIsAcceptedAndCounted) {
  connect(left_, right_);
  arrive(packet_with_identification(0), {});
  arrive(packet_with_identification(0x1234), {});
  auto damaged = packet_with_identification(0x1234);
  damaged[13] ^= std::byte{1};
  arrive(damaged, {});
  const CardCounters counters = right_card_->counters();
  EXPECT_EQ(counters.icrc_exact, 1u);
  EXPECT_EQ(counters.icrc_affine, 1u);
  EXPECT_EQ(counters.icrc_bad, 1u);
  EXPECT_EQ(counters.no_queue_pair, 2u);
}

TEST_F(ReceiveTest, WithTheIdentificationOnlyTheRightOneIsAccepted) {
  connect(left_, right_);
  arrive(packet_with_identification(0x1234), 0x1234);
  arrive(packet_with_identification(0x1234), 0x1235);
  arrive(packet_with_identification(0), 0x1234);
  const CardCounters counters = right_card_->counters();
  EXPECT_EQ(counters.icrc_exact, 1u);
  EXPECT_EQ(counters.icrc_affine, 0u);
  EXPECT_EQ(counters.icrc_bad, 2u);
  EXPECT_EQ(counters.no_queue_pair, 1u);
}

// This process did not run for a while. The acknowledgement came in time, but behind much else.
TEST_F(ReceiveTest, AnAnswerThatWaitsInTheSocketIsReadBeforeItsTimerExpires) {
  connect(left_, right_);
  const std::vector<std::byte> garbage(20);
  for (int i = 0; i < 1000; ++i) network_.inject(right_address, left_address, source_port, garbage);
  ASSERT_EQ(right_.receive(1, 0, 4096), PostResult::ok);
  ASSERT_EQ(left_.post(WrOpcode::send, 1, 0, 100), PostResult::ok);
  right_.poll();
  ASSERT_EQ(right_.done.size(), 1u);
  network_.advance(1s);  // far beyond any retransmission time
  left_.poll();
  ASSERT_EQ(left_.done.size(), 1u);
  EXPECT_EQ(left_.done[0].status, WcStatus::success);
  EXPECT_EQ(left_card_->qp_counters(left_.qp()).timeouts, 0u);
  EXPECT_EQ(left_card_->qp_counters(left_.qp()).retransmitted_packets, 0u);
}

// Posting does not look at what has arrived; so it expires nothing either.
TEST_F(ReceiveTest, APostExpiresNoTimerOfWhoseAnswerNobodyHasLooked) {
  connect(left_, right_);
  ASSERT_EQ(right_.receive(1, 0, 4096), PostResult::ok);
  ASSERT_EQ(right_.receive(2, 0, 4096), PostResult::ok);
  ASSERT_EQ(left_.post(WrOpcode::send, 1, 0, 100), PostResult::ok);
  right_.poll();
  network_.advance(1s);
  ASSERT_EQ(left_.post(WrOpcode::send, 2, 0, 100), PostResult::ok);
  EXPECT_EQ(left_card_->qp_counters(left_.qp()).timeouts, 0u);
  left_.poll();
  EXPECT_EQ(left_card_->qp_counters(left_.qp()).retransmitted_packets, 0u);
  right_.poll();
  left_.poll();
  EXPECT_EQ(left_.done.size(), 2u);
}

// The counterpart: without an answer the timer does expire, however much garbage comes, and the
// port hears of it.
TEST_F(ReceiveTest, WithoutAnAnswerTheTimerExpiresBehindWhatHasArrived) {
  connect(left_, right_);
  ASSERT_EQ(right_.receive(1, 0, 4096), PostResult::ok);
  FakePort* port = network_.port_of(1);
  ASSERT_NE(port, nullptr);
  Faults lossy;
  lossy.loss = 1;
  network_.set_faults(lossy);
  ASSERT_EQ(left_.post(WrOpcode::send, 1, 0, 100), PostResult::ok);
  network_.set_faults({});
  const std::vector<std::byte> garbage(20);
  for (int i = 0; i < 1000; ++i) network_.inject(right_address, left_address, source_port, garbage);
  network_.advance(2ms);  // beyond the timer, but not so far that the queue pair gives up
  EXPECT_EQ(port->silences, 0);
  left_.poll();
  EXPECT_EQ(left_card_->qp_counters(left_.qp()).timeouts, 1u);
  EXPECT_EQ(port->silences, 1);
  for (int i = 0; i < 1000 && right_.done.empty(); ++i) {
    left_.poll();
    right_.poll();
    network_.advance(1ms);
  }
  EXPECT_EQ(right_.done.size(), 1u);
}

}  // namespace
}  // namespace beeline::nic::test
