// Datagrams and unreliable connections between cards, and strangers who send what they like.
#include <cstring>

#include "nic/two_cards.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace beeline::nic::test {
namespace {

using proto::DatagramTarget;
using proto::PostResult;
using proto::QpState;
using proto::QpType;
using proto::WcOpcode;
using proto::WcStatus;
using proto::WrOpcode;

constexpr std::size_t grh_bytes = 40;

EndOptions of_type(QpType type) {
  EndOptions options;
  options.type = type;
  return options;
}

DatagramTarget target_of(Card& from, const EndAddress& to) {
  AddressVector address;
  address.destination = to.gid;
  return {value_of(from.resolve_path(0, address)), to.qpn, End::qkey};
}

class CardDatagrams : public TwoCards {
 protected:
  void SetUp() override {
    connect_both(of_type(QpType::ud));
    to_right_ = target_of(*left_card_, right_->address());
  }
  DatagramTarget to_right_;
};

TEST_F(CardDatagrams, ArriveBehindTheirHeaderArea) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1025}, std::size_t{4096}}) {
    left_->fill(0, bytes, 3);
    ASSERT_EQ(right_->receive(5, 100, grh_bytes + 4096), PostResult::ok);
    ASSERT_EQ(left_->send_datagram(6, 0, bytes, to_right_), PostResult::ok);
    ASSERT_TRUE(run_until([&] { return !left_->done.empty() && !right_->done.empty(); })) << bytes;
    const auto& got = right_->done[0];
    EXPECT_EQ(got.status, WcStatus::success);
    EXPECT_EQ(got.opcode, WcOpcode::receive);
    EXPECT_EQ(got.byte_length, grh_bytes + bytes);
    EXPECT_TRUE(got.has_grh);
    EXPECT_EQ(got.source_qpn, left_->address().qpn);
    ASSERT_EQ(std::memcmp(right_->memory().data() + 100 + grh_bytes, left_->memory().data(), bytes), 0);
    // The area ends with an IPv4 header: source and destination are its last 8 bytes.
    EXPECT_EQ(std::memcmp(right_->memory().data() + 100 + 32, left_address.bytes.data() + 12, 4), 0);
    EXPECT_EQ(std::memcmp(right_->memory().data() + 100 + 36, right_address.bytes.data() + 12, 4), 0);
    EXPECT_EQ(left_->done[0].wr_id, 6u);
    left_->done.clear();
    right_->done.clear();
  }
}

// One queue pair, many destinations within one batch; the answers come back the same way.
TEST_F(CardDatagrams, EachGoesItsOwnWay) {
  auto third_card = make_card(network_, 3, IpAddress::v4(10, 0, 0, 3));
  End third(*third_card, of_type(QpType::ud)), second_right(*right_card_, of_type(QpType::ud));
  third.open_for_datagrams();
  second_right.open_for_datagrams();
  End* const receivers[] = {&*right_, &third, &second_right};
  std::array<DatagramTarget, 3> targets;
  for (std::size_t i = 0; i < 3; ++i) {
    targets[i] = target_of(*left_card_, receivers[i]->address());
    for (std::uint64_t k = 0; k < 10; ++k) ASSERT_EQ(receivers[i]->receive(k, k * 200, 200), PostResult::ok);
  }
  for (std::size_t k = 0; k < 30; ++k) {
    left_->memory()[k] = static_cast<std::byte>(k);
    ASSERT_EQ(left_->send_datagram(k, k, 1, targets[k % 3]), PostResult::ok);
  }
  ASSERT_TRUE(run_until([&] {
    third.poll();
    second_right.poll();
    return right_->done.size() == 10 && third.done.size() == 10 && second_right.done.size() == 10;
  }));
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t k = 0; k < 10; ++k)
      EXPECT_EQ(receivers[i]->memory()[k * 200 + grh_bytes], static_cast<std::byte>(k * 3 + i));
}

TEST_F(CardDatagrams, AWrongQkeyOrNoReceiveIsSilence) {
  to_right_.remote_qkey = 0x22222222;
  ASSERT_EQ(right_->receive(1, 0, 4200), PostResult::ok);
  ASSERT_EQ(left_->send_datagram(1, 0, 100, to_right_), PostResult::ok);
  ASSERT_TRUE(run_until([&] { return !left_->done.empty(); }));
  EXPECT_EQ(left_->done[0].status, WcStatus::success) << "whoever sends does not hear of it";
  run_for(100);
  EXPECT_TRUE(right_->done.empty());
  to_right_.remote_qkey = End::qkey;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(left_->send_datagram(1, 0, 100, to_right_), PostResult::ok);
  run_for(100);
  EXPECT_EQ(right_->done.size(), 1u) << "one receive, one datagram";
  EXPECT_EQ(right_->state(), QpState::rts);
}

TEST_F(CardDatagrams, FlowFromASocketThatHasNoRoomArrivesInOrder) {
  network_.set_faults({.no_room = 0.3});
  for (std::uint64_t k = 0; k < 100; ++k) {
    ASSERT_EQ(right_->receive(k, k * 100, 100), PostResult::ok);
    left_->memory()[k] = static_cast<std::byte>(k);
    ASSERT_EQ(left_->send_datagram(k, k, 1, to_right_), PostResult::ok);
  }
  ASSERT_TRUE(run_until([&] { return right_->done.size() == 100 && left_->done.size() == 100; }));
  for (std::size_t k = 0; k < 100; ++k)
    EXPECT_EQ(right_->memory()[k * 100 + grh_bytes], static_cast<std::byte>(k));
}

TEST_F(CardDatagrams, NoAddressOfAnotherDeviceTakesThem) {
  // The card listens on both addresses, but each device's queue pairs only on its own.
  port::Interface interfaces[] = {interface_with(IpAddress::v4(10, 0, 0, 8)),
                                  interface_with(IpAddress::v4(10, 0, 0, 9))};
  auto card = value_of(Card::create(Config{}, network_.make_port(4), interfaces, false));
  End first(*card, of_type(QpType::ud));
  first.open_for_datagrams();
  AddressVector of_second;
  of_second.destination = left_address;
  ASSERT_TRUE(card->resolve_path(1, of_second).has_value());  // opens 10.0.0.9
  ASSERT_EQ(first.receive(1, 0, 4200), PostResult::ok);
  EndAddress wrong = first.address();
  wrong.gid = IpAddress::v4(10, 0, 0, 9);
  ASSERT_EQ(left_->send_datagram(1, 0, 8, target_of(*left_card_, wrong)), PostResult::ok);
  run_for(50);
  first.poll();
  EXPECT_TRUE(first.done.empty());
  EXPECT_EQ(card->counters().wrong_peer, 1u);
  ASSERT_EQ(left_->send_datagram(1, 0, 8, target_of(*left_card_, first.address())), PostResult::ok);
  EXPECT_TRUE(run_until([&] {
    first.poll();
    return first.done.size() == 1;
  }));
}

TEST_F(CardDatagrams, PathsAreCheckedWhenTheyAreMade) {
  AddressVector address;
  address.destination = right_address;
  EXPECT_EQ(left_card_->resolve_path(1, address).error().code, Errc::not_found);
  EXPECT_EQ(left_card_->resolve_path(-1, address).error().code, Errc::not_found);
  address.gid_index = 1;
  EXPECT_FALSE(left_card_->resolve_path(0, address));
  address.gid_index = 0;
  address.destination = {};
  EXPECT_FALSE(left_card_->resolve_path(0, address));
  address.destination.bytes[0] = 0xFE;
  EXPECT_FALSE(left_card_->resolve_path(0, address)) << "IPv6 from an IPv4 address";
}

TEST_F(CardDatagrams, AnAddressThatIsTakenFailsTheStepToReadyToReceive) {
  const port::Interface interface = interface_with(FakePort::unusable);
  auto card = value_of(Card::create(Config{}, network_.make_port(9), {&interface, 1}, false));
  End end(*card, of_type(QpType::ud));
  proto::QpAttr a;
  namespace attr = proto::attr;
  a.state = QpState::init;
  ASSERT_TRUE(succeeds(
      card->modify_qp(end.qp(), a, attr::state | attr::pkey_index | attr::port | attr::qkey, nullptr)));
  a.state = QpState::rtr;
  EXPECT_FALSE(card->modify_qp(end.qp(), a, attr::state, nullptr));
  EXPECT_EQ(end.state(), QpState::init);
}

// A datagram as anybody on the network can make it.
std::vector<std::byte> forged(const IpAddress& from, const IpAddress& to, wire::Opcode opcode, Qpn qpn,
                              std::uint32_t qkey, std::size_t bytes) {
  wire::Headers headers;
  headers.bth.opcode = opcode;
  headers.bth.destination = qpn;
  headers.bth.psn = Psn{1};
  headers.bth.pkey = wire::default_pkey;
  headers.bth.pad_count = static_cast<std::uint8_t>((4 - bytes % 4) % 4);
  headers.deth.qkey = qkey;
  headers.deth.source = Qpn{0x77};
  std::vector<std::byte> packet(wire::max_header_bytes + bytes + 8);
  const std::size_t header_bytes = wire::emit(headers, packet);
  const std::size_t end = header_bytes + bytes + headers.bth.pad_count;
  packet.resize(end + wire::icrc_bytes);
  wire::IpUdp ip_udp{from, to, 0xC123};
  ip_udp.udp_payload_bytes = static_cast<std::uint16_t>(packet.size());
  wire::Icrc crc(ip_udp);
  crc.update_headers(Bytes(packet).first(header_bytes));
  crc.update(Bytes(packet).subspan(header_bytes, end - header_bytes));
  wire::store_icrc(packet.data() + end, crc.value());
  return packet;
}

TEST_F(CardDatagrams, AStormOfStrangersCostsCountersOnly) {
  Prng random(7);
  for (std::uint64_t k = 0; k < 4; ++k) ASSERT_EQ(right_->receive(k, k * 5000, 5000), PostResult::ok);
  const Qpn victim = right_->address().qpn;
  const auto rows = wire::opcode_table();
  for (int i = 0; i < 3000; ++i) {
    const IpAddress stranger = IpAddress::v4(172, 16, static_cast<std::uint8_t>(random.below(256)), 1);
    auto packet = forged(stranger, right_address, rows[random.below(rows.size())].opcode, victim,
                         static_cast<std::uint32_t>(random.next()), random.below(4097));
    if (random.chance(0.3)) packet.resize(random.below(packet.size()));
    network_.inject(stranger, right_address, 0xC123, packet);
    if (i % 50 == 0) run_for(2);
  }
  run_for(200);
  EXPECT_TRUE(right_->done.empty()) << "nobody guessed the Q_Key";
  EXPECT_EQ(right_->state(), QpState::rts);
  ASSERT_EQ(left_->send_datagram(9, 0, 64, to_right_), PostResult::ok);
  EXPECT_TRUE(run_until([&] { return right_->done.size() == 1; })) << "and it still works";
}

TEST_F(CardDatagrams, StrangersWhoKnowTheQkeyFillReceivesAndNothingElse) {
  for (std::uint64_t k = 0; k < 100; ++k) ASSERT_EQ(right_->receive(k, k * 200, 200), PostResult::ok);
  const IpAddress stranger = IpAddress::v4(172, 16, 0, 1);
  const auto packet =
      forged(stranger, right_address, wire::Opcode::ud_send_only, right_->address().qpn, End::qkey, 161);
  for (int i = 0; i < 10; ++i) network_.inject(stranger, right_address, 0xC123, packet);
  run_for(100);
  EXPECT_TRUE(right_->done.empty()) << "one byte too long: silence";
  const auto small =
      forged(stranger, right_address, wire::Opcode::ud_send_only, right_->address().qpn, End::qkey, 8);
  for (int i = 0; i < 1000; ++i) network_.inject(stranger, right_address, 0xC123, small);
  ASSERT_TRUE(run_until([&] { return right_->done.size() == 100; }));
  run_for(100);
  EXPECT_EQ(right_->done.size(), 100u);
  EXPECT_EQ(right_->state(), QpState::rts);
}

class CardUnreliable : public TwoCards {
 protected:
  void SetUp() override { connect_both(of_type(QpType::uc)); }
};

TEST_F(CardUnreliable, SendsAndWritesOfManySizes) {
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{4096}, std::size_t{4097}, std::size_t{100001}}) {
    left_->fill(0, bytes, 3);
    ASSERT_EQ(right_->receive(5, 200000, 200000), PostResult::ok);
    ASSERT_EQ(left_->post(WrOpcode::write, 1, 0, bytes, 500000), PostResult::ok);
    ASSERT_EQ(left_->post(WrOpcode::send, 2, 0, bytes), PostResult::ok);
    ASSERT_TRUE(run_until([&] { return left_->done.size() == 2 && right_->done.size() == 1; })) << bytes;
    EXPECT_FALSE(left_->failed() || right_->failed());
    EXPECT_EQ(right_->done[0].byte_length, bytes);
    ASSERT_EQ(std::memcmp(right_->memory().data() + 200000, left_->memory().data(), bytes), 0);
    ASSERT_EQ(std::memcmp(right_->memory().data() + 500000, left_->memory().data(), bytes), 0);
    left_->done.clear();
    right_->done.clear();
  }
  EXPECT_EQ(left_->post(WrOpcode::read, 1, 0, 8), PostResult::invalid);
}

TEST_F(CardUnreliable, WhatArrivesOnALossyNetworkIsWhole) {
  network_.set_faults({.loss = 0.05, .duplicate = 0.05, .reorder = 0.05, .corrupt = 0.05, .no_room = 0.05});
  constexpr std::size_t bytes = 20000;
  std::size_t arrived = 0;
  for (std::uint32_t round = 0; round < 200; ++round) {
    left_->fill(0, bytes, round);
    if (round == 0 || !right_->done.empty()) {
      right_->done.clear();
      ASSERT_EQ(right_->receive(round, 300000, bytes), PostResult::ok);
    }
    ASSERT_EQ(left_->post(WrOpcode::send, round, 0, bytes), PostResult::ok);
    ASSERT_TRUE(run_until([&] { return left_->done.size() == round + 1; }));
    run_for(20);
    if (right_->done.empty()) continue;
    ++arrived;
    ASSERT_EQ(right_->done[0].status, WcStatus::success);
    ASSERT_EQ(right_->done[0].byte_length, bytes);
    ASSERT_EQ(std::memcmp(right_->memory().data() + 300000, left_->memory().data(), bytes), 0) << round;
  }
  EXPECT_GT(arrived, 10u);
  EXPECT_LT(arrived, 200u);
}

TEST_F(CardUnreliable, OnlyThePeerIsHeard) {
  ASSERT_EQ(right_->receive(1, 0, 100), PostResult::ok);
  const IpAddress stranger = IpAddress::v4(172, 16, 0, 1);
  const auto packet =
      forged(stranger, right_address, wire::Opcode::uc_send_only, right_->address().qpn, 0, 8);
  network_.inject(stranger, right_address, 0xC123, packet);
  run_for(50);
  EXPECT_TRUE(right_->done.empty());
  EXPECT_EQ(right_card_->counters().wrong_peer, 1u);
}

TEST_F(CardUnreliable, OpcodesOfAnotherServiceAreDroppedAndCounted) {
  ASSERT_EQ(right_->receive(1, 0, 100), PostResult::ok);
  for (const auto opcode : {wire::Opcode::rc_send_only, wire::Opcode::ud_send_only})
    network_.inject(left_address, right_address, 0xC123,
                    forged(left_address, right_address, opcode, right_->address().qpn, End::qkey, 8));
  run_for(50);
  EXPECT_TRUE(right_->done.empty());
  EXPECT_EQ(right_card_->qp_counters(right_->qp()).dropped_packets, 2u);
}

}  // namespace
}  // namespace beeline::nic::test
