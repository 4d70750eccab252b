// Datagrams to queue pair 1 have no slot: any process gets them, one gets each, and it passes on what is for
// others.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/ip.h>

#include <algorithm>
#include <cstdio>

#include "port/udp/data_socket.h"
#include "port/udp/handover.h"
#include "port/udp/raw_socket.h"
#include "port/udp/steering.h"
#include "port/udp/test_support.h"

namespace beeline::port::test {
namespace {

constexpr std::size_t number_at = 16;

Packet to_queue_pair(std::uint32_t qpn, std::uint32_t number = 0) {
  Packet packet{};
  store_u8(packet.data(), 0x64);  // UD SEND only
  store_be24(packet.data() + 5, qpn);
  store_be32(packet.data() + number_at, number);
  return packet;
}
Packet to_management(std::uint32_t number = 0) { return to_queue_pair(1, number); }
std::uint32_t number_of(Bytes bytes) { return load_be32(bytes.data() + number_at); }

// --- which socket takes it ---

// Both filters of a process with slot 0, to which the destination queue pair 1 seems to belong.
class SlotZero : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!may_see_ip_headers()) return (void)std::puts("needs CAP_NET_RAW: not run");
    auto data = open_data_socket(address_, 0);
    auto raw = open_raw_socket(address_, Slot{0});
    ASSERT_TRUE(data && raw);
    ASSERT_TRUE(drop_what_the_raw_socket_takes(data->get(), Slot{0}));
    data_ = std::move(*data);
    raw_ = std::move(*raw);
  }
  // How many datagrams wait there; takes them all.
  static int take_all(const Descriptor& socket) {
    std::array<std::byte, 512> buffer;
    int count = 0;
    while (::recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT) >= 0) ++count;
    return count;
  }
  // Loopback delivers before sendto() returns.
  void expect_taken(Bytes datagram, bool by_raw) {
    Stranger(address_).send(address_, datagram);
    EXPECT_EQ(take_all(raw_), by_raw ? 1 : 0);
    EXPECT_EQ(take_all(data_), by_raw ? 0 : 1);
  }
  IpAddress address_ = own_address(9);
  Descriptor data_, raw_;
};

TEST_F(SlotZero, OneSocketTakesEachQueuePairNumber) {
  if (!raw_) return;
  expect_taken(to_queue_pair(1), false);
  for (const std::uint32_t qpn : {0u, 2u, 0x101u, 0x00'0100u, 0x00'FFFFu}) {
    SCOPED_TRACE(qpn);
    expect_taken(to_queue_pair(qpn), true);
  }
  expect_taken(to_queue_pair(0x01'0001), false);  // slot 1
  Packet reserved = to_queue_pair(1);
  store_u8(reserved.data() + 4, 0xFF);  // BTH's reserved byte is no part of the number
  expect_taken(reserved, false);
  Packet probe = to_queue_pair(2);
  store_u8(probe.data(), probe_marker);
  expect_taken(probe, false);
}

// A slot takes six bytes, a queue pair number eight; what lies between is malformed, and the slot's.
TEST_F(SlotZero, OneSocketTakesEachLength) {
  if (!raw_) return;
  const Packet management = to_management(), other = to_queue_pair(2);
  for (std::size_t length = 0; length <= management.size(); ++length) {
    SCOPED_TRACE(length);
    expect_taken(Bytes(management).first(length), length == 6 || length == 7);
    expect_taken(Bytes(other).first(length), length >= 6);
  }
}

// --- which process gets it ---

// Ports of this process on one address, and what came to each.
class Processes {
 public:
  Processes(const IpAddress& address, std::initializer_list<IcrcCheck> checks) : address_(address) {
    for (const IcrcCheck check : checks) ports_.push_back(open_port(address, check));
    arrived_.resize(ports_.size());
  }
  Port& operator[](std::size_t i) { return *ports_[i]; }
  std::size_t size() const { return ports_.size(); }

  // Whatever the processes learn meanwhile: the group sends what seems to be for slot 0 to this member.
  void steer_to(int index) {
    const auto member = open_data_socket(address_, 0);
    ASSERT_TRUE(member);
    SteeringTable table;
    table.index_of_slot[0] = static_cast<std::int16_t>(index);
    ASSERT_TRUE(attach_steering(member->get(), table));
  }
  // What to do with a datagram in the process that got it, while it is there.
  using Handler = std::function<void(std::size_t process, const InPacket& packet)>;
  void pump(const Handler& handle = {}) {
    std::array<InPacket, 32> out;
    for (std::size_t i = 0; i < ports_.size(); ++i) {
      ports_[i]->wait(ports_[i]->now());
      const std::size_t filled = ports_[i]->receive(out);
      for (std::size_t k = 0; k < filled; ++k) {
        if (handle) handle(i, out[k]);
        arrived_[i].push_back({out[k], Contents(out[k].bytes.begin(), out[k].bytes.end())});
      }
    }
  }
  bool pump_until(const std::function<bool()>& done, const Handler& handle = {}) {
    const TimePoint end = ports_[0]->now() + patience;
    while (!done()) {
      if (ports_[0]->now() >= end) return false;
      pump(handle);
    }
    for (int i = 0; i < 50; ++i) pump(handle);  // and what should not come at all
    return true;
  }
  const std::vector<Copy>& of(std::size_t i) const { return arrived_[i]; }
  std::size_t total() const {
    std::size_t count = 0;
    for (const auto& packets : arrived_) count += packets.size();
    return count;
  }

 private:
  IpAddress address_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<std::vector<Copy>> arrived_;
};

struct Kinds {
  const char* name;
  IcrcCheck first, second;
};
class QueuePairOne : public ::testing::TestWithParam<Kinds> {};

TEST_P(QueuePairOne, EachDatagramComesOnceWhicheverProcessGetsIt) {
  const Kinds& kinds = GetParam();
  if ((kinds.first == IcrcCheck::strict || kinds.second == IcrcCheck::strict) && !may_see_ip_headers())
    return (void)std::puts("needs CAP_NET_RAW: not run");
  const IpAddress address = own_address(10);
  Processes both(address, {kinds.first, kinds.second});
  Stranger stranger(address);
  std::uint32_t sent = 0;
  // Steered to either, and again should a round of learning have put it back in between.
  for (int round = 0; round < 2 || (round < 100 && (both.of(0).empty() || both.of(1).empty())); ++round) {
    both.steer_to(round % 2);
    for (int i = 0; i < 10; ++i) stranger.send(address, to_management(sent++));
    ASSERT_TRUE(both.pump_until([&] { return both.total() >= sent; })) << both.total() << " of " << sent;
  }
  std::vector<std::uint32_t> numbers;
  for (std::size_t i = 0; i < both.size(); ++i) {
    EXPECT_FALSE(both.of(i).empty()) << "nothing ever came to process " << i;
    for (const Copy& copy : both.of(i)) {
      numbers.push_back(number_of(copy.bytes));
      EXPECT_FALSE(copy.packet.handed_over);
      EXPECT_FALSE(copy.packet.ip_header_seen) << "a UDP socket has it";
      EXPECT_EQ(copy.packet.source, address);
      EXPECT_EQ(copy.packet.destination, address);
    }
    EXPECT_EQ(both[i].counters().handed_over, 0u);
    EXPECT_EQ(both[i].counters().handed_over_twice, 0u);
  }
  std::ranges::sort(numbers);
  ASSERT_EQ(numbers.size(), sent);
  for (std::uint32_t i = 0; i < sent; ++i) EXPECT_EQ(numbers[i], i);
}

INSTANTIATE_TEST_SUITE_P(All, QueuePairOne,
                         ::testing::Values(Kinds{"plain_plain", IcrcCheck::plain, IcrcCheck::plain},
                                           Kinds{"strict_plain", IcrcCheck::strict, IcrcCheck::plain},
                                           Kinds{"plain_strict", IcrcCheck::plain, IcrcCheck::strict},
                                           Kinds{"strict_strict", IcrcCheck::strict, IcrcCheck::strict}),
                         [](const auto& each) { return each.param.name; });

// --- passing on ---

class PassOn : public ::testing::Test {
 protected:
  PassOn() : all_(address_, {IcrcCheck::plain, IcrcCheck::plain, IcrcCheck::plain}) {}
  // Sends one datagram, and has whoever gets it from the wire pass it on, to `to(receiver)`.
  using Choice = std::function<std::optional<Slot>(std::size_t receiver)>;
  void pass_one_on(const Choice& to, std::size_t expected) {
    Stranger stranger(address_);
    stranger.set(IPPROTO_IP, IP_TOS, 3);  // CE
    stranger.send(address_, to_management(5));
    ASSERT_TRUE(all_.pump_until([&] { return all_.total() >= expected; },
                                [&](std::size_t i, const InPacket& packet) {
                                  if (packet.handed_over) return;
                                  receiver_ = i;
                                  passed_ = all_[i].pass_on(packet, to(i));
                                }));
    EXPECT_EQ(all_.total(), expected);
    EXPECT_EQ(all_[receiver_].counters().passed_on, static_cast<std::uint64_t>(passed_));
  }
  void expect_handed_over(std::size_t process) {
    ASSERT_EQ(all_.of(process).size(), 1u);
    const Copy& copy = all_.of(process)[0];
    EXPECT_TRUE(copy.packet.handed_over);
    EXPECT_EQ(copy.packet.source, address_);
    EXPECT_EQ(copy.packet.destination, address_);
    EXPECT_EQ(copy.packet.source_port, all_.of(receiver_)[0].packet.source_port);
    EXPECT_TRUE(copy.packet.congestion_experienced);
    const Packet sent = to_management(5);
    EXPECT_EQ(copy.bytes, Contents(sent.begin(), sent.end()));
    EXPECT_EQ(all_[process].counters().taken_over, 1u);
  }
  IpAddress address_ = own_address(11);
  Processes all_;
  std::size_t receiver_ = 0;
  int passed_ = 0;
};

TEST_F(PassOn, ToOneSlotGoesThereAndNowhereElse) {
  pass_one_on([&](std::size_t i) { return all_[(i + 1) % 3].slot(); }, 2);
  EXPECT_EQ(passed_, 1);
  expect_handed_over((receiver_ + 1) % 3);
  EXPECT_TRUE(all_.of((receiver_ + 2) % 3).empty());
}

TEST_F(PassOn, ToEverybodyGoesToEachOtherProcessOnce) {
  pass_one_on([](std::size_t) { return std::nullopt; }, 3);
  EXPECT_GE(passed_, 2);  // other programs of this machine get it as well, and refuse it
  expect_handed_over((receiver_ + 1) % 3);
  expect_handed_over((receiver_ + 2) % 3);
}

TEST_F(PassOn, ToOneselfIsNobody) {
  pass_one_on([&](std::size_t i) { return all_[i].slot(); }, 1);
  EXPECT_EQ(passed_, 0);
}

TEST_F(PassOn, ToASlotThatNobodyOwnsIsNobody) {
  int unowned = slot_count - 1;
  while (unowned > 0 && slot_owner(Slot{static_cast<std::uint8_t>(unowned)}) != 0) --unowned;
  ASSERT_GT(unowned, 0);
  pass_one_on([&](std::size_t) { return Slot{static_cast<std::uint8_t>(unowned)}; }, 1);
  EXPECT_EQ(passed_, 0);
}

TEST_F(PassOn, WhatWasHandedOverIsNotPassedOnAgain) {
  int again = 0;
  Stranger(address_).send(address_, to_management());
  ASSERT_TRUE(all_.pump_until([&] { return all_.total() >= 3; },
                              [&](std::size_t i, const InPacket& packet) {
                                const int passed = all_[i].pass_on(packet, std::nullopt);
                                if (!packet.handed_over) return;
                                again += passed + all_[i].pass_on(packet, all_[(i + 1) % 3].slot());
                              }));
  EXPECT_EQ(again, 0);
  EXPECT_EQ(all_.total(), 3u) << "it went round";
}

// A process that does not look fills its channel, and nobody waits for it.
TEST_F(PassOn, IsBoundedAndNeverBlocks) {
  constexpr int attempts_max = 100'000;
  Stranger(address_).send(address_, to_management());
  int passed = 0;
  bool full = false;
  ASSERT_TRUE(all_.pump_until([&] { return full; },
                              [&](std::size_t i, const InPacket& packet) {
                                if (packet.handed_over || full) return;
                                while (!full && passed < attempts_max) {
                                  full = all_[i].pass_on(packet, all_[(i + 1) % 3].slot()) == 0;
                                  if (!full) ++passed;
                                }
                              }));
  EXPECT_GT(passed, 16);
  EXPECT_LT(passed, attempts_max);
}

// A process with a raw socket has no copy of it, so it takes what is handed over.
TEST(PassOnToStrict, IsTaken) {
  if (!may_see_ip_headers()) return (void)std::puts("needs CAP_NET_RAW: not run");
  const IpAddress address = own_address(12);
  Processes both(address, {IcrcCheck::strict, IcrcCheck::strict});
  Stranger(address).send(address, to_management(5));
  ASSERT_TRUE(both.pump_until(
      [&] { return both.total() >= 2; },
      [&](std::size_t i, const InPacket& packet) { both[i].pass_on(packet, both[1 - i].slot()); }));
  EXPECT_EQ(both.of(0).size(), 1u);
  EXPECT_EQ(both.of(1).size(), 1u);
  EXPECT_NE(both.of(0)[0].packet.handed_over, both.of(1)[0].packet.handed_over);
  EXPECT_EQ(both[0].counters().handed_over_twice + both[1].counters().handed_over_twice, 0u);
}

// --- what comes through the channel is not trusted ---

class HostileManagement : public ::testing::Test {
 protected:
  void SetUp() override {
    port_ = open_port(address_);
    ASSERT_NE(port_, nullptr);
    socket_ = Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const SlotName name(port_->slot());
    ASSERT_EQ(::connect(socket_.get(), name.get(), name.length), 0);
  }
  void hand_over(Bytes payload, const IpAddress& destination, std::uint8_t flags = 0) {
    HandOverMessage message;
    message.sender = Slot{17};
    message.source = IpAddress::v4(10, 1, 2, 3);
    message.source_port = 0xC123;
    message.destination = destination;
    HandOverHeader header = encode(message);
    store_u8(header.data() + 6, flags);
    Contents bytes(header.begin(), header.end());
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    EXPECT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  IpAddress address_ = own_address(14);
  std::unique_ptr<Port> port_;
  Descriptor socket_;
};

TEST_F(HostileManagement, NonsenseIsCountedAndTheRestIsMarkedAsHandedOver) {
  const Packet good = to_management(7);
  std::uint64_t refused = 0;
  hand_over(good, IpAddress::v4(10, 0, 0, 1)), ++refused;  // not an address of ours
  hand_over(good, IpAddress{}), ++refused;
  hand_over(good, address_, 4), ++refused;  // a flag that does not exist
  Contents too_long(datagram_bytes_max + 1);
  std::copy(good.begin(), good.end(), too_long.begin());
  hand_over(too_long, address_), ++refused;
  if (port_->slot().value != 0) {  // else it is ours, and malformed: the card counts it
    hand_over(Bytes(good).first(7), address_), ++refused;  // the queue pair number is cut
  }
  hand_over(to_queue_pair(static_cast<std::uint32_t>((port_->slot().value + 1) % 256) << 16 | 1), address_);
  ++refused;  // another slot's queue pair, which only looks like number 1

  const Contents shortest(good.begin(), good.begin() + 8);  // enough for a number; the card looks at the rest
  hand_over(shortest, address_);
  hand_over(good, address_);
  const auto got = receive_copies(*port_, 2);
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].bytes, shortest);
  for (const Copy& copy : got) {
    EXPECT_TRUE(copy.packet.handed_over);
    EXPECT_FALSE(copy.packet.ip_header_seen);
    EXPECT_EQ(port_->pass_on(copy.packet, std::nullopt), 0);
  }
  EXPECT_EQ(port_->counters().hand_over_refused, refused);
  EXPECT_EQ(port_->counters().taken_over, 2u);
  EXPECT_EQ(port_->counters().passed_on, 0u);
}

TEST_F(HostileManagement, AFloodRespectsTheSpanAndStarvesNobody) {
  constexpr std::uint32_t each = 60, span = 3;
  Stranger stranger(address_);
  for (std::uint32_t i = 0; i < each; ++i) {
    hand_over(to_management(i), address_);
    stranger.send(address_, packet_for(port_->slot(), i));
  }
  std::array<InPacket, 16> out;
  for (InPacket& packet : out) packet.source_port = 1;
  std::uint32_t handed_over = 0, ours = 0;
  const TimePoint end = port_->now() + patience;
  while (handed_over + ours < 2 * each && port_->now() < end) {
    port_->wait(port_->now());
    const std::size_t filled = port_->receive(std::span(out).first(span));
    ASSERT_LE(filled, span);
    for (std::size_t i = 0; i < filled; ++i) ++(out[i].handed_over ? handed_over : ours);
    for (std::size_t i = span; i < out.size(); ++i)
      ASSERT_EQ(out[i].source_port, 1) << "written behind the span";
  }
  EXPECT_EQ(handed_over, each);
  EXPECT_EQ(ours, each);
}

TEST_F(HostileManagement, AForeignUserCannotHandOverToQueuePairOne) {
  if (!is_root()) return (void)std::puts("needs root to be another user: not run");
  EXPECT_EQ(run_as(nobody,
                   [&] {
                     socket_ = Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
                     const SlotName name(port_->slot());
                     if (::connect(socket_.get(), name.get(), name.length) != 0) return 2;
                     hand_over(to_management(), address_);
                     return ::testing::Test::HasFailure() ? 1 : 0;
                   }),
            0);
  EXPECT_TRUE(pump_until(*port_, [&] { return port_->counters().hand_over_refused >= 1; }));
  hand_over(to_management(7), address_);
  const auto got = receive_copies(*port_, 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(number_of(got[0].bytes), 7u);
  EXPECT_EQ(port_->counters().taken_over, 1u);
}

}  // namespace
}  // namespace beeline::port::test
