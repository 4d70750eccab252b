// Trains of packets: which are built, what happens to those that cannot go, and cutting those that come
// whole.
#include <sys/mman.h>

#include <cstring>

#include "base/random.h"
#include "nic/train_builder.h"
#include "nic/train_cut.h"
#include "nic/two_cards.h"
#include "wire/headers.h"

namespace beeline::nic::test {
namespace {

using proto::PostResult;
using proto::WcStatus;
using proto::WrOpcode;

// --- which packets are a train ---

TrainBuilder::Packet packet(std::size_t bytes, std::uint32_t psn) {
  return {bytes, 1, Psn{psn}, nullptr, false};
}

TEST(TrainBuilder, EqualPacketsFollowOneAnotherAndTheLastMayBeShorter) {
  TrainBuilder train;
  train.begin(64);
  EXPECT_EQ(train.place_of(packet(4128, 7)), 0);
  EXPECT_EQ(train.place_of(packet(4112, 8)), 1) << "MIDDLE is shorter than FIRST, and ends its train";
  EXPECT_EQ(train.place_of(packet(4112, 9)), 0);
  EXPECT_EQ(train.place_of(packet(4112, 10)), 1);
  EXPECT_EQ(train.place_of(packet(100, 11)), 2);
  EXPECT_EQ(train.place_of(packet(100, 12)), 0);
}

TEST(TrainBuilder, AShorterOneEndsIt) {
  TrainBuilder train;
  train.begin(64);
  EXPECT_EQ(train.place_of(packet(1000, 1)), 0);
  EXPECT_EQ(train.place_of(packet(900, 2)), 1);
  EXPECT_EQ(train.place_of(packet(900, 3)), 0);
  EXPECT_EQ(train.place_of(packet(900, 4)), 1);
}

TEST(TrainBuilder, PsnsFollowOneAnotherAlsoAroundTheEnd) {
  TrainBuilder train;
  train.begin(64);
  EXPECT_EQ(train.place_of(packet(100, 0xFFFFFE)), 0);
  EXPECT_EQ(train.place_of(packet(100, 0xFFFFFF)), 1);
  EXPECT_EQ(train.place_of(packet(100, 0)), 2);
  EXPECT_EQ(train.place_of(packet(100, 2)), 0);
}

TEST(TrainBuilder, WhatIsSentAgainOrElsewhereOrByAnotherGoesApart) {
  TrainBuilder train;
  train.begin(64);
  TrainBuilder::Packet again = packet(100, 1);
  again.alone = true;
  EXPECT_EQ(train.place_of(packet(100, 0)), 0);
  EXPECT_EQ(train.place_of(again), 0);
  EXPECT_EQ(train.place_of(packet(100, 2)), 0) << "not behind one that is sent again";
  TrainBuilder::Packet elsewhere = packet(100, 3);
  elsewhere.path = &train;
  EXPECT_EQ(train.place_of(elsewhere), 0);
  train.begin(64);
  EXPECT_EQ(train.place_of(packet(100, 4)), 0);
}

TrainBuilder::Packet acknowledgement(std::uint32_t psn) {
  TrainBuilder::Packet made = packet(20, psn);
  made.acknowledges = true;
  return made;
}

TEST(TrainBuilder, AnAcknowledgementEndsATrain) {
  TrainBuilder train;
  train.begin(64);
  EXPECT_EQ(train.place_of(packet(20, 1)), 0);
  EXPECT_EQ(train.place_of(acknowledgement(77)), 1) << "whatever its PSN";
  EXPECT_EQ(train.place_of(packet(20, 78)), 0);
  EXPECT_EQ(train.place_of(packet(20, 79)), 1);
  EXPECT_EQ(train.place_of(acknowledgement(78)), 2);
  EXPECT_EQ(train.place_of(acknowledgement(79)), 0);
  EXPECT_EQ(train.place_of(packet(20, 80)), 0) << "and begins none";
  EXPECT_EQ(train.place_of(packet(16, 81)), 1);
  EXPECT_EQ(train.place_of(acknowledgement(80)), 0) << "the one before was shorter than the first";
  EXPECT_EQ(train.place_of(packet(16, 82)), 0);
  EXPECT_EQ(train.place_of(acknowledgement(81)), 0) << "it is longer than that";
}

TEST(TrainBuilder, LimitsAreKept) {
  TrainBuilder train;
  const auto longest = [&](std::size_t allowed, std::size_t bytes, std::size_t pieces) {
    train.begin(allowed);
    std::size_t longest_run = 0;
    for (std::uint32_t i = 0; i < 200; ++i) {
      TrainBuilder::Packet next = packet(bytes, i);
      next.pieces = pieces;
      longest_run = std::max<std::size_t>(longest_run, train.place_of(next) + std::size_t{1});
    }
    return longest_run;
  };
  EXPECT_EQ(longest(64, 100, 1), 64u);
  EXPECT_EQ(longest(1000, 100, 1), port::train_packets_max);
  EXPECT_EQ(longest(1, 100, 1), 1u);
  EXPECT_EQ(longest(64, 4112, 3), 15u);
  EXPECT_EQ(longest(64, 1040, 1), 62u);
  EXPECT_EQ(longest(64, 100, 18), port::train_pieces_max / 18);
}

// --- where a train that came whole is cut ---

const wire::IpUdp path{left_address, right_address, 50000};

// ACKs in form: what is in them does not matter here.
std::vector<std::byte> make_train(std::size_t packets, std::size_t bytes_each, std::size_t last_bytes,
                                  Prng& random, std::uint32_t psn = 0xFFFFFE) {
  std::vector<std::byte> train;
  for (std::size_t i = 0; i < packets; ++i) {
    std::vector<std::byte> one(i + 1 < packets ? bytes_each : last_bytes);
    for (std::byte& byte : one) byte = static_cast<std::byte>(random.below(256));
    store_be16(one.data() + 2, 0xFFFF);
    store_be32(one.data() + 4, 0x00020304);
    store_be32(one.data() + 8, (psn + static_cast<std::uint32_t>(i)) & Psn::mask);
    wire::IpUdp ip_udp = path;
    ip_udp.ip_id = static_cast<std::uint16_t>(i);
    ip_udp.udp_payload_bytes = static_cast<std::uint16_t>(one.size());
    wire::Icrc crc(ip_udp);
    crc.update_headers(Bytes(one).first(one.size() - 4));
    wire::store_icrc(one.data() + one.size() - 4, crc.value());
    train.insert(train.end(), one.begin(), one.end());
  }
  return train;
}

TEST(TrainCut, IsFoundForEverySize) {
  Prng random(1);
  for (std::size_t bytes = 16; bytes <= packet_bytes_max; bytes += bytes < 200 ? 4 : 52)
    for (const std::size_t packets : {2u, 3u, 15u}) {
      const std::size_t last = 16 + 4 * random.below((bytes - 16) / 4 + 1);
      const auto train = make_train(packets, bytes, last, random);
      if (train.size() > port::train_bytes_max) continue;
      EXPECT_EQ(find_train_cut(train, path), bytes) << packets << " " << last;
      EXPECT_EQ(find_train_cut(train, path, bytes), bytes);
      EXPECT_EQ(find_train_cut(train, path, 1040), bytes);
    }
}

TEST(TrainCut, HeadersInAPayloadMisleadNobody) {
  Prng random(2);
  auto train = make_train(3, 1040, 1040, random, 5);
  // As if the second packet began 100 bytes into the first: it is no ICRC that is right there.
  for (const std::size_t at : {100u, 200u, 300u}) {
    std::memcpy(train.data() + at, train.data(), 12);
    store_be32(train.data() + at + 8, 6);
  }
  wire::IpUdp ip_udp = path;
  ip_udp.udp_payload_bytes = 1040;
  wire::Icrc crc(ip_udp);
  crc.update_headers(Bytes(train).first(1036));
  wire::store_icrc(train.data() + 1036, crc.value());
  EXPECT_EQ(find_train_cut(train, path), 1040u);
}

// Of an acknowledgement, whose PSN has nothing to do with those before it.
void append_acknowledgement(std::vector<std::byte>& train, std::size_t place) {
  std::vector<std::byte> one(20);
  store_u8(one.data(), static_cast<std::uint8_t>(wire::Opcode::rc_acknowledge));
  store_be16(one.data() + 2, 0xFFFF);
  store_be32(one.data() + 4, 0x00020304);
  store_be32(one.data() + 8, 0x123456);
  wire::IpUdp ip_udp = path;
  ip_udp.ip_id = static_cast<std::uint16_t>(place);
  ip_udp.udp_payload_bytes = 20;
  wire::Icrc crc(ip_udp);
  crc.update_headers(Bytes(one).first(16));
  wire::store_icrc(one.data() + 16, crc.value());
  train.insert(train.end(), one.begin(), one.end());
}

TEST(TrainCut, AnAcknowledgementAtTheEndBelongsToIt) {
  Prng random(4);
  for (const std::size_t packets : {1, 2, 3, 15})
    for (const std::size_t bytes : {20, 24, 1040, 4112}) {
      auto train = make_train(packets, bytes, bytes, random);
      append_acknowledgement(train, packets);
      EXPECT_EQ(find_train_cut(train, path), bytes) << packets;
      EXPECT_EQ(find_train_cut(train, path, bytes), bytes) << packets;
      train[train.size() - 20 + 7] ^= std::byte{1};  // for another queue pair
      EXPECT_EQ(find_train_cut(train, path), 0u) << packets;
    }
}

TEST(TrainCut, NothingElseIsATrain) {
  Prng random(3);
  EXPECT_EQ(find_train_cut(make_train(1, 4112, 4112, random), path), 0u);
  auto damaged = make_train(4, 1040, 1040, random);
  damaged[20] ^= std::byte{1};
  EXPECT_EQ(find_train_cut(damaged, path), 0u) << "the first ICRC says where";
  std::vector<std::byte> bytes(65'504);
  for (int i = 0; i < 20; ++i) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256));
    EXPECT_EQ(
        find_train_cut(Bytes(bytes).first(4 * random.below(bytes.size() / 4)), path, 4 * random.below(1040)),
        0u);
  }
  std::fill(bytes.begin(), bytes.end(), std::byte{0});  // looks like headers everywhere
  EXPECT_EQ(find_train_cut(bytes, path), 0u);
  for (std::size_t length = 0; length < 64; ++length)
    EXPECT_EQ(find_train_cut(Bytes(bytes).first(length), path), 0u);
}

// --- two cards ---

class TrainsBetweenCards : public TwoCards {
 protected:
  static constexpr std::size_t bytes = 65'536;

  void SetUp() override {
    network_.train_max = 64;
    EndOptions options;
    options.memory_bytes = 2 * bytes;
    options.path_mtu = 4096;
    connect_both(options);
    left_->fill(0, bytes, 3);
  }
  void write_and_check() {
    ASSERT_EQ(left_->post(WrOpcode::write, 1, 0, bytes, 64), PostResult::ok);
    ASSERT_TRUE(run_until([&] { return !left_->done.empty(); }));
    EXPECT_EQ(left_->done[0].status, WcStatus::success);
    EXPECT_EQ(std::memcmp(right_->memory().data() + 64, left_->memory().data(), bytes), 0);
    EXPECT_EQ(right_card_->counters().icrc_bad, 0u);
    EXPECT_EQ(right_card_->counters().icrc_affine, 0u);
  }
};

TEST_F(TrainsBetweenCards, AMessageIsTwo) {
  write_and_check();
  EXPECT_EQ(network_.trains, 2u);
  EXPECT_EQ(right_card_->counters().icrc_exact, 16u);
  EXPECT_EQ(left_card_->qp_counters(left_->qp()).retransmitted_packets, 0u);
}

TEST_F(TrainsBetweenCards, WhatComesWholeIsCut) {
  network_.deliver_whole = true;
  write_and_check();
  EXPECT_EQ(right_card_->counters().trains_received, 2u);
  EXPECT_EQ(right_card_->counters().received, 16u);
  EXPECT_EQ(left_card_->qp_counters(left_->qp()).retransmitted_packets, 0u);
}

TEST_F(TrainsBetweenCards, ReadResponsesAreTrainsToo) {
  right_->fill(0, bytes, 9);
  ASSERT_EQ(left_->post(WrOpcode::read, 1, 0, bytes), PostResult::ok);
  ASSERT_TRUE(run_until([&] { return !left_->done.empty(); }));
  EXPECT_EQ(left_->done[0].status, WcStatus::success);
  EXPECT_EQ(std::memcmp(right_->memory().data(), left_->memory().data(), bytes), 0);
  EXPECT_GE(network_.trains, 1u);
  EXPECT_EQ(left_card_->counters().icrc_bad, 0u);
}

// A message leaves late and meets the acknowledgement of one that has come meanwhile. The other side hears of
// the end of its own message first.
TEST_F(TrainsBetweenCards, AnAcknowledgementRidesBehindAMessageAndIsTakenFirst) {
  for (const bool whole : {false, true}) {
    SCOPED_TRACE(whole);
    network_.deliver_whole = whole;
    ASSERT_EQ(left_->receive(1, bytes, 64), PostResult::ok);
    ASSERT_EQ(right_->receive(2, bytes, 64), PostResult::ok);
    network_.set_faults({.no_room = 1});
    ASSERT_EQ(right_->post(WrOpcode::send, 3, 0, 4), PostResult::ok);
    network_.set_faults({});
    network_.advance(100us);
    const std::uint64_t before = network_.trains, carried = network_.carried();
    ASSERT_EQ(left_->post(WrOpcode::send, 4, 0, 4), PostResult::ok);
    right_->poll();
    EXPECT_EQ(network_.trains, before + 1);
    EXPECT_EQ(network_.carried(), carried + (whole ? 2 : 3));
    left_->poll();
    ASSERT_EQ(left_->done.size(), 2u);
    EXPECT_EQ(left_->done[0].wr_id, 4u);
    EXPECT_EQ(left_->done[1].wr_id, 1u);
    ASSERT_TRUE(run_until([&] { return right_->done.size() == 2; }));
    EXPECT_EQ(left_card_->counters().icrc_bad + right_card_->counters().icrc_bad, 0u);
    EXPECT_EQ(right_card_->qp_counters(right_->qp()).retransmitted_packets, 0u);
    left_->done.clear();
    right_->done.clear();
  }
}

TEST_F(TrainsBetweenCards, ARefusedTrainGoesPacketByPacketInOrder) {
  network_.refuse_trains = true;
  write_and_check();
  EXPECT_EQ(network_.trains, 0u);
  EXPECT_EQ(network_.trains_refused, 2u);
  EXPECT_EQ(left_card_->qp_counters(left_->qp()).retransmitted_packets, 0u);
  EXPECT_EQ(right_card_->qp_counters(right_->qp()).out_of_sequence_packets, 0u);
}

// Under loss, damage and full sockets everything arrives.
TEST_F(TrainsBetweenCards, SurviveABadNetwork) {
  network_.set_faults({.loss = 0.05, .duplicate = 0.05, .reorder = 0.05, .corrupt = 0.05, .no_room = 0.05});
  for (const bool whole : {false, true}) {
    network_.deliver_whole = whole;
    for (int i = 0; i < 10; ++i) {
      left_->done.clear();
      left_->fill(0, bytes, static_cast<std::uint32_t>(i));
      ASSERT_EQ(left_->post(WrOpcode::write, 1, 0, bytes, 64), PostResult::ok);
      ASSERT_TRUE(run_until([&] { return !left_->done.empty(); }));
      ASSERT_EQ(left_->done[0].status, WcStatus::success);
      ASSERT_EQ(std::memcmp(right_->memory().data() + 64, left_->memory().data(), bytes), 0);
    }
  }
  EXPECT_GT(network_.trains, 10u);
}

// The memory goes away between the ICRC and the kernel's gathering, in the middle of a train: what lies
// before is sent, and the work request fails.
TEST_F(TrainsBetweenCards, AFaultInTheMiddleIsThatPackets) {
  constexpr std::size_t page = 4096, good_pages = 5;
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const memory = static_cast<std::byte*>(mapped);
  std::memset(memory, 0x5A, bytes);
  const auto keys = value_of(left_card_->register_region(
      left_->domain(), memory, bytes, reinterpret_cast<std::uintptr_t>(memory), full_access));
  network_.before_gather = [&](const port::OutPacket&) {
    ::mprotect(memory + good_pages * page, bytes - good_pages * page, PROT_NONE);
  };
  const proto::Sge piece{reinterpret_cast<std::uintptr_t>(memory), bytes, keys.lkey};
  ASSERT_EQ(left_->post(WrOpcode::write, 1, std::span(&piece, 1)), PostResult::ok);
  ASSERT_TRUE(run_until([&] { return !left_->done.empty(); }));
  EXPECT_EQ(left_->done[0].status, WcStatus::local_protection_error);
  EXPECT_EQ(network_.trains_refused, 1u);
  run_for(10);
  EXPECT_EQ(right_card_->counters().icrc_bad, 0u);
  const std::vector<std::byte> expected(good_pages * page, std::byte{0x5A});
  EXPECT_EQ(std::memcmp(right_->memory().data(), expected.data(), expected.size()), 0);
  EXPECT_EQ(right_->memory()[expected.size()], std::byte{0});
  network_.before_gather = nullptr;
  succeeds(left_card_->deregister_region(keys.lkey));
  ::munmap(mapped, bytes);
}

}  // namespace
}  // namespace beeline::nic::test
