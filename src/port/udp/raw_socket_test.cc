// Receiving with the IP header: what it shows, that each datagram comes once, and who may.
#include "port/udp/raw_socket.h"

#include <gtest/gtest.h>
#include <netinet/ip.h>
#include <sched.h>

#include <cstdio>
#include <string>

#include "port/udp/data_socket.h"
#include "port/udp/handover.h"
#include "port/udp/steering.h"
#include "port/udp/test_support.h"

namespace beeline::port::test {
namespace {

struct IpOptions {
  std::uint16_t id = 0, flags_and_offset = 0x4000;
  std::size_t behind_udp = 0;  // bytes after the UDP datagram
};

// An IPv4 datagram with UDP in it, as a foreign sender might write it. The checksums are left out: the
// kernel fills in the header's, and UDP's may be missing.
Contents ip_datagram(const IpAddress& from, const IpAddress& to, Bytes payload, const IpOptions& options) {
  Contents bytes(28 + payload.size() + options.behind_udp);
  store_u8(bytes.data(), 0x45);
  store_be16(bytes.data() + 2, static_cast<std::uint16_t>(bytes.size()));
  store_be16(bytes.data() + 4, options.id);
  store_be16(bytes.data() + 6, options.flags_and_offset);
  store_u8(bytes.data() + 8, 64);
  store_u8(bytes.data() + 9, IPPROTO_UDP);
  std::memcpy(bytes.data() + 12, from.bytes.data() + 12, 4);
  std::memcpy(bytes.data() + 16, to.bytes.data() + 12, 4);
  store_be16(bytes.data() + 20, 0xC123);
  store_be16(bytes.data() + 22, roce_port);
  store_be16(bytes.data() + 24, static_cast<std::uint16_t>(8 + payload.size()));
  std::memcpy(bytes.data() + 28, payload.data(), payload.size());
  return bytes;
}

TEST(IpDatagram, SaysWhatTheHeaderSays) {
  const IpAddress from = IpAddress::v4(10, 1, 2, 3), to = IpAddress::v4(10, 4, 5, 6);
  const Packet payload = packet_for(Slot{9}, 7);
  Contents bytes = ip_datagram(from, to, payload, {0xABCD, 0});
  store_u8(bytes.data() + 1, 3);  // CE
  const auto packet = parse_ip_datagram(bytes);
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->source, from);
  EXPECT_EQ(packet->destination, to);
  EXPECT_EQ(packet->source_port, 0xC123);
  EXPECT_EQ(packet->ip_id, 0xABCD);
  EXPECT_FALSE(packet->dont_fragment);
  EXPECT_TRUE(packet->ip_header_seen);
  EXPECT_TRUE(packet->congestion_experienced);
  EXPECT_TRUE(std::equal(payload.begin(), payload.end(), packet->bytes.begin(), packet->bytes.end()));
}

TEST(IpDatagram, RefusesWhatNoRocePacketHas) {
  const IpAddress address = IpAddress::v4(10, 1, 2, 3);
  const Contents good = ip_datagram(address, address, packet_for(Slot{9}), {});
  for (std::size_t length = 0; length < good.size(); ++length) {
    Contents cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_FALSE(parse_ip_datagram(cut)) << length;
  }
  for (const std::size_t at : {0u, 2u, 3u, 7u, 24u, 25u}) {  // version and options, lengths, fragment
    Contents bad = good;
    bad[at] ^= std::byte{1};
    EXPECT_FALSE(parse_ip_datagram(bad)) << at;
  }
  Contents more_fragments = ip_datagram(address, address, packet_for(Slot{9}), {0, 0x2000});
  EXPECT_FALSE(parse_ip_datagram(more_fragments));
  Contents trailing = ip_datagram(address, address, packet_for(Slot{9}), {0, 0x4000, 1});
  EXPECT_FALSE(parse_ip_datagram(trailing));
}

TEST(IcrcMode, PlainNeedsNothingAndWithoutTheRightAutomaticIsPlain) {
  const auto plain = make_udp_port(IcrcCheck::plain);
  ASSERT_TRUE(plain);
  EXPECT_FALSE((*plain)->sees_ip_headers());
  const auto chosen = make_udp_port();
  ASSERT_TRUE(chosen);
  EXPECT_EQ((*chosen)->sees_ip_headers(), may_see_ip_headers());
  const auto unprivileged = [] {
    const auto automatic = make_udp_port(IcrcCheck::automatic);
    if (!automatic || (*automatic)->sees_ip_headers()) return 1;
    const auto strict = make_udp_port(IcrcCheck::strict);
    if (strict || strict.error().code != Errc::permission) return 2;
    return strict.error().message.find("BEELINE_ICRC=strict") == 0 ? 0 : 3;
  };
  EXPECT_EQ(is_root() ? run_as(nobody, unprivileged) : may_see_ip_headers() ? 0 : unprivileged(), 0);
}

// --- from here on the right to open raw sockets is the point ---

class WithHeaders : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!may_see_ip_headers()) return (void)std::puts("needs CAP_NET_RAW: not run");
    strict_ = open_port(address_, IcrcCheck::strict);
    ASSERT_NE(strict_, nullptr);
    sender_ = Descriptor(::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
    ASSERT_TRUE(sender_);
  }
  void send(Bytes datagram) {
    SocketAddress name;
    const socklen_t length = fill(name, address_, 0, 0);
    ASSERT_EQ(::sendto(sender_.get(), datagram.data(), datagram.size(), 0, &name.any, length),
              static_cast<ssize_t>(datagram.size()));
  }
  // A last packet behind what the test sent; everything else that comes first is returned.
  std::vector<Copy> all_before_a_last_one(Port& port) {
    Stranger(address_).send(address_, packet_for(port.slot(), last));
    std::vector<Copy> copies;
    for (;;) {
      auto next = receive_copies(port, 1);
      if (next.empty()) return copies;
      for (Copy& copy : next) {
        if (copy.bytes.size() == sizeof(Packet) && load_be32(copy.bytes.data() + 16) == last) return copies;
        copies.push_back(std::move(copy));
      }
    }
  }
  static constexpr std::uint32_t last = 0xFEEDBEEF;
  IpAddress address_ = own_address(15);
  std::unique_ptr<Port> strict_;
  Descriptor sender_;
};

// Until it is bound, a raw socket is everybody's: what comes then must not stay in it.
TEST(RawSocket, HasNothingThatCameToOtherAddresses) {
  if (!may_see_ip_headers()) return (void)std::puts("needs CAP_NET_RAW: not run");
  const Slot slot{200};
  const IpAddress other = own_address(8), address = own_address(15);
  const auto receiver = open_data_socket(other, 0);  // else its sender is told that nobody is there
  ASSERT_TRUE(receiver);
  const pid_t flood = ::fork();
  if (flood == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const Packet packet = packet_for(slot);
    for (Stranger stranger(other);;) stranger.send(other, packet);
  }
  std::array<std::byte, 64> buffer;
  int strays = 0;
  for (int i = 0; i < 300; ++i) {
    const auto raw = open_raw_socket(address, slot);
    ASSERT_TRUE(raw);
    while (::recv(raw->get(), buffer.data(), buffer.size(), MSG_DONTWAIT) >= 0) ++strays;
  }
  ::kill(flood, SIGKILL);
  ::waitpid(flood, nullptr, 0);
  EXPECT_EQ(strays, 0);
}

TEST_F(WithHeaders, ShowsIdentificationAndFlagsOnce) {
  if (!strict_) return;
  const Packet payload = packet_for(strict_->slot(), 5);
  send(ip_datagram(address_, address_, payload, {0x1234, 0x4000}));
  send(ip_datagram(address_, address_, payload, {0x4321, 0}));
  const auto got = all_before_a_last_one(*strict_);
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].packet.ip_id, 0x1234);
  EXPECT_TRUE(got[0].packet.dont_fragment);
  EXPECT_EQ(got[1].packet.ip_id, 0x4321);
  EXPECT_FALSE(got[1].packet.dont_fragment);
  for (const Copy& copy : got) {
    EXPECT_TRUE(copy.packet.ip_header_seen);
    EXPECT_EQ(copy.packet.source, address_);
    EXPECT_EQ(copy.packet.destination, address_);
    EXPECT_EQ(copy.packet.source_port, 0xC123);
    EXPECT_EQ(copy.bytes, Contents(payload.begin(), payload.end()));
  }
}

TEST_F(WithHeaders, TakesWhatFitsNoSlotFromTheUdpSocket) {
  if (!strict_) return;
  Stranger stranger(address_);
  for (std::size_t length = 0; length <= 5; ++length) stranger.send(address_, Contents(length, std::byte{4}));
  Packet marked = packet_for(strict_->slot());
  store_u8(marked.data(), probe_marker);  // no RoCE opcode, and longer than a probe
  stranger.send(address_, marked);
  EXPECT_EQ(receive_copies(*strict_, 7).size(), 7u);
  EXPECT_TRUE(all_before_a_last_one(*strict_).empty());
}

TEST_F(WithHeaders, DropsAndCountsOddHeaders) {
  if (!strict_) return;
  send(ip_datagram(address_, address_, packet_for(strict_->slot()), {1, 0x4000, 4}));
  EXPECT_TRUE(all_before_a_last_one(*strict_).empty());
  EXPECT_EQ(strict_->counters().ip_header_odd, 1u);
}

// The card cuts it, or finds that it is none.
TEST_F(WithHeaders, WhatMayBeATrainComesUpWhole) {
  if (!strict_) return;
  Contents train(60'000);
  store_u8(train.data() + 5, strict_->slot().value);
  send(ip_datagram(address_, address_, train, {7, 0x4000}));
  const auto got = all_before_a_last_one(*strict_);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].bytes, train);
  EXPECT_TRUE(got[0].packet.may_be_train);
  EXPECT_EQ(got[0].packet.ip_id, 7);
}

TEST_F(WithHeaders, FragmentsComeAsOneDatagram) {
  if (!strict_) return;
  const Packet payload = packet_for(strict_->slot(), 5);
  const Contents whole = ip_datagram(address_, address_, payload, {77, 0});
  Contents first(whole.begin(), whole.begin() + 36), second(whole.begin(), whole.begin() + 20);
  second.insert(second.end(), whole.begin() + 36, whole.end());
  store_be16(first.data() + 2, static_cast<std::uint16_t>(first.size()));
  store_be16(first.data() + 6, 0x2000);  // more fragments
  store_be16(second.data() + 2, static_cast<std::uint16_t>(second.size()));
  store_be16(second.data() + 6, 2);  // its offset, in 8 bytes
  send(first);
  send(second);
  const auto got = all_before_a_last_one(*strict_);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].packet.ip_id, 77);
  EXPECT_EQ(got[0].bytes, Contents(payload.begin(), payload.end()));
}

// Two ports on one address, and what came to each.
struct Pair {
  Port& strict;
  Port& plain;
  std::vector<std::uint32_t> of_strict = {}, of_plain = {};

  void pump_both() {
    take(strict, of_strict);
    take(plain, of_plain);
  }
  static void take(Port& port, std::vector<std::uint32_t>& numbers) {
    std::array<InPacket, 32> out;
    port.wait(port.now());
    for (std::size_t n = port.receive(out), i = 0; i < n; ++i) {
      EXPECT_EQ(load_u8(out[i].bytes.data() + 5), port.slot().value);
      numbers.push_back(load_be32(out[i].bytes.data() + 16));
    }
  }
  // Twenty packets for each: every one comes, and none comes twice.
  void exchange(const IpAddress& address) {
    of_strict.clear(), of_plain.clear();
    Stranger stranger(address);
    for (std::uint32_t i = 0; i < 20; ++i) {
      stranger.send(address, packet_for(strict.slot(), i));
      stranger.send(address, packet_for(plain.slot(), i));
    }
    const TimePoint end = strict.now() + patience;
    while ((of_strict.size() < 20 || of_plain.size() < 20) && strict.now() < end) pump_both();
    for (int i = 0; i < 50; ++i) pump_both();
    EXPECT_EQ(of_strict.size(), 20u);
    EXPECT_EQ(of_plain.size(), 20u);
  }
};

// Neither takes anything from the other, wherever the kernel's group sends a datagram.
TEST_F(WithHeaders, EachDatagramComesOnceToItsOwnerBesideAPlainProcess) {
  if (!strict_) return;
  auto plain = open_port(address_, IcrcCheck::plain);
  ASSERT_NE(plain, nullptr);
  Pair both{*strict_, *plain};
  SteeringTable wrong;  // all that is for the strict one goes to the plain one, and the reverse
  wrong.index_of_slot[strict_->slot().value] = 1;
  wrong.index_of_slot[plain->slot().value] = 0;
  // Again, should a round of learning have put it right in between.
  for (int attempt = 0; attempt < 50 && strict_->counters().handed_over_twice == 0; ++attempt) {
    pump(*strict_, 20);
    pump(*plain, 20);
    const auto member = open_data_socket(address_, 0);
    ASSERT_TRUE(member);
    ASSERT_TRUE(attach_steering(member->get(), wrong));
    both.exchange(address_);
  }
  EXPECT_GT(strict_->counters().handed_over_twice, 0u);
  EXPECT_EQ(strict_->counters().taken_over, 0u);
  for (int i = 0; i < 3; ++i) both.exchange(address_);  // and when it is right again
}

TEST_F(WithHeaders, NothingIsLeftInTheChildOfAFork) {
  if (!strict_) return;
  strict_.reset();
  const std::size_t before = open_descriptors();
  strict_ = open_port(address_, IcrcCheck::strict);
  const pid_t child = ::fork();
  if (child == 0) {
    strict_->abandon_after_fork();
    ::_exit(open_descriptors() == before ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(all_before_a_last_one(*strict_).empty());
}

// What the host's firewall drops on input, a raw socket does not see either.
TEST_F(WithHeaders, TheFirewallComesFirst) {
  if (!strict_) return;
  constexpr int cannot = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::unshare(CLONE_NEWNET) != 0 || std::system("ip link set lo up") != 0) ::_exit(cannot);
    const auto port = open_port(address_, IcrcCheck::strict);
    const Packet first = packet_for(port->slot(), 1), second = packet_for(port->slot(), 2);
    Stranger stranger(address_);
    if (std::system("nft 'add table inet t; add chain inet t i { type filter hook input priority 0; }; "
                    "add rule inet t i udp dport 4791 @th,64,8 0x04 drop' 2>/dev/null") != 0)
      ::_exit(cannot);
    stranger.send(address_, first);
    Packet other = second;
    store_u8(other.data(), 0x06);  // the rule drops SEND only, opcode 4
    stranger.send(address_, other);
    const auto got = receive_copies(*port, 1);
    ::_exit(got.size() == 1 && load_be32(got[0].bytes.data() + 16) == 2 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == cannot)
    return (void)std::puts("needs a network namespace and nft: not run");
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace beeline::port::test
