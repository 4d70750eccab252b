#include "port/udp/handover.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/clock.h"
#include "base/random.h"
#include "port/udp/test_support.h"

namespace beeline::port::test {
namespace {

HandOverMessage example() {
  HandOverMessage message;
  message.sender = Slot{17};
  message.congestion_experienced = message.behind_another = true;
  message.marks = {0x6B, 61};
  message.index = 3;
  message.source_port = 0xC123;
  message.source = IpAddress::v4(10, 1, 2, 3);
  message.destination = *parse_address("fd00::2");
  return message;
}

TEST(HandOverHeader, EncodesAndDecodesAsInverses) {
  const HandOverMessage message = example();
  const auto decoded = decode_handover(encode(message));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->kind, message.kind);
  EXPECT_EQ(decoded->sender.value, message.sender.value);
  EXPECT_EQ(decoded->congestion_experienced, message.congestion_experienced);
  EXPECT_EQ(decoded->marks, message.marks);
  EXPECT_EQ(decoded->behind_another, message.behind_another);
  EXPECT_EQ(decoded->index, message.index);
  EXPECT_EQ(decoded->source_port, message.source_port);
  EXPECT_EQ(decoded->source, message.source);
  EXPECT_EQ(decoded->destination, message.destination);
}

TEST(HandOverHeader, RefusesWhatItDidNotWrite) {
  const HandOverHeader good = encode(example());
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(decode_handover(Bytes(good).first(length)));
  for (const std::size_t fixed : {0u, 1u, 2u, 3u, 4u, 13u, 14u, 15u}) {
    HandOverHeader bad = good;
    bad[fixed] ^= std::byte{0x10};
    EXPECT_FALSE(decode_handover(bad)) << fixed;
  }
  for (const int kind : {0, 3, 255}) {
    HandOverHeader bad = good;
    bad[5] = static_cast<std::byte>(kind);
    EXPECT_FALSE(decode_handover(bad)) << kind;
  }
  HandOverHeader bad_flags = good;
  bad_flags[6] = std::byte{4};
  EXPECT_FALSE(decode_handover(bad_flags));
}

TEST(HandOver, PassesPacketsWithAllThatIsKnownAboutThem) {
  auto from = HandOver::create(), to = HandOver::create();
  ASSERT_TRUE(from && to);
  const Packet packet = packet_for((*to)->slot(), 5);
  ASSERT_EQ((*from)->pass((*to)->slot(), example(), packet, {}), HandOver::Outcome::passed);
  HandOver::Received got[4];
  std::uint64_t refused = 0;
  std::size_t count = 0;
  for (int i = 0; i < 3 && count == 0; ++i) count = (*to)->receive(got, refused);  // accept first, then read
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(refused, 0u);
  EXPECT_EQ(got[0].message.source, example().source);
  EXPECT_EQ(got[0].message.source_port, example().source_port);
  EXPECT_TRUE(got[0].message.congestion_experienced);
  ASSERT_EQ(got[0].payload.size(), packet.size());
  EXPECT_TRUE(std::equal(packet.begin(), packet.end(), got[0].payload.begin()));
}

TEST(HandOver, IsBoundedAndNeverBlocks) {
  auto from = HandOver::create(), to = HandOver::create();
  ASSERT_TRUE(from && to);
  const std::vector<std::byte> packet(4096);
  int passed = 0;
  HandOver::Outcome outcome = HandOver::Outcome::passed;
  for (; passed < 100'000 && outcome == HandOver::Outcome::passed; ++passed)
    outcome = (*from)->pass((*to)->slot(), example(), packet, {});
  EXPECT_EQ(outcome, HandOver::Outcome::full);
  EXPECT_GT(passed, 16);
}

TEST(HandOver, FollowsASlotToItsNewOwner) {
  auto from = HandOver::create();
  ASSERT_TRUE(from);
  const Packet packet = packet_for(Slot{0});
  for (int life = 0; life < 3; ++life) {
    auto to = HandOver::create();
    ASSERT_TRUE(to);
    EXPECT_EQ((*from)->pass((*to)->slot(), example(), packet, {}), HandOver::Outcome::passed);
    // The owner dies with the packet unread; the next one gets its own.
  }
}

TEST(HandOver, RemembersForAMomentThatASlotHasNoOwner) {
  auto from = HandOver::create();
  ASSERT_TRUE(from);
  Slot slot;
  {
    auto gone = HandOver::create();
    ASSERT_TRUE(gone);
    slot = (*gone)->slot();
  }
  const Packet packet = packet_for(slot);
  EXPECT_EQ((*from)->pass(slot, example(), packet, TimePoint{0} + 1s), HandOver::Outcome::refused);
  auto back = HandOver::create();
  ASSERT_TRUE(back);
  if ((*back)->slot().value != slot.value) return;  // another program on this machine took it meanwhile
  EXPECT_EQ((*from)->pass(slot, example(), packet, TimePoint{0} + 1s), HandOver::Outcome::refused);
  EXPECT_EQ((*from)->pass(slot, example(), packet, TimePoint{0} + 2s), HandOver::Outcome::passed);
}

TEST(HandOver, WhoComesLaterMeetsThoseWhoAreThereAndBothHearOfTheEnd) {
  auto first = HandOver::create(), second = HandOver::create();
  ASSERT_TRUE(first && second);
  (*second)->meet_others({});
  EXPECT_GE((*second)->peers(), 1);
  HandOver::Received got[4];
  std::uint64_t refused = 0;
  const TimePoint end = monotonic_now() + patience;
  const auto pump_one = [&](HandOver& one, const std::function<bool()>& done) {
    while (!done())
      if (one.receive(got, refused); monotonic_now() >= end) return false;
    return true;
  };
  EXPECT_TRUE(pump_one(**first, [&] { return (*first)->peers() > 0; }));

  auto third = HandOver::create();
  ASSERT_TRUE(third);
  (*third)->meet_others({});
  const int with_third = (*third)->peers();
  EXPECT_GE(with_third, 2);
  EXPECT_TRUE(pump_one(**first, [&] { return (*first)->peers() > 1; }));
  while ((*first)->take_departure() || (*third)->take_departure()) continue;
  *second = nullptr;  // has met `first` by its own connection, and `third` by third's
  EXPECT_TRUE(pump_one(**first, [&] { return (*first)->take_departure(); }));
  EXPECT_TRUE(pump_one(**third, [&] { return (*third)->take_departure(); }));
  EXPECT_LT((*third)->peers(), with_third);
}

// Whether there is one more message for it; it accepts first, then reads.
bool hears(HandOver& one) {
  HandOver::Received got[4];
  std::uint64_t refused = 0;
  const TimePoint end = monotonic_now() + patience;
  while (monotonic_now() < end)
    if (one.receive(got, refused) > 0) return true;
  return false;
}

TEST(HandOver, PassesToAllWhoCameSince) {
  auto first = HandOver::create();
  ASSERT_TRUE(first);
  const Packet packet = packet_for(Slot{0});
  std::vector<std::unique_ptr<HandOver>> others;
  for (std::size_t count = 1; count <= 3; ++count) {
    (*first)->pass_to_all(example(), packet, {});  // to note which slots have no owner
    auto other = HandOver::create();
    ASSERT_TRUE(other);
    (*other)->meet_others({});
    others.push_back(std::move(*other));
    HandOver::Received got[4];
    std::uint64_t refused = 0;
    const int before = (*first)->peers();
    const TimePoint end = monotonic_now() + patience;
    while ((*first)->peers() == before && monotonic_now() < end) (*first)->receive(got, refused);
    EXPECT_GE((*first)->pass_to_all(example(), packet, {}), static_cast<int>(count));
    EXPECT_TRUE(hears(*others.back()));
  }
}

// Strangers' datagrams must not make us look through all slots each time.
TEST(HandOver, SeeksNobodyWhoDidNotComeToUs) {
  auto first = HandOver::create();
  ASSERT_TRUE(first);
  const Packet packet = packet_for(Slot{0});
  (*first)->pass_to_all(example(), packet, {});
  const auto silent = claim_slot();
  ASSERT_TRUE(silent);
  const TimePoint later = TimePoint{} + 10s;  // what is remembered about slots without owners is forgotten
  (*first)->pass_to_all(example(), packet, later);
  EXPECT_LT(::accept4(silent->listener.get(), nullptr, nullptr, SOCK_CLOEXEC), 0) << "it was looked for";
}

// --- what the port makes of a hostile peer ---

class Hostile : public ::testing::Test {
 protected:
  void SetUp() override {
    address_ = own_address(13);
    port_ = open_port(address_);
    ASSERT_NE(port_, nullptr);
  }
  Descriptor connect_to_port() {
    Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const SlotName name(port_->slot());
    EXPECT_EQ(::connect(socket.get(), name.get(), name.length), 0);
    return socket;
  }
  static void send(const Descriptor& socket, const HandOverMessage& message, Bytes payload) {
    const HandOverHeader header = encode(message);
    Contents bytes(header.begin(), header.end());
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  HandOverMessage good() const {
    HandOverMessage message = example();
    message.destination = address_;
    return message;
  }
  void expect_refused(std::uint64_t count) {
    EXPECT_TRUE(pump_until(*port_, [&] { return port_->counters().hand_over_refused >= count; }));
    EXPECT_EQ(port_->counters().hand_over_refused, count);
    EXPECT_EQ(port_->counters().taken_over, 0u);
  }
  IpAddress address_;
  std::unique_ptr<Port> port_;
};

TEST_F(Hostile, NonsenseIsCountedAndAGoodPacketStillArrives) {
  const Descriptor socket = connect_to_port();
  const Packet mine = packet_for(port_->slot());
  std::uint64_t refused = 0;
  const auto send_raw = [&](std::size_t length) {
    const Contents bytes(length, std::byte{0x42});
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ++refused;
  };
  send_raw(1);
  send_raw(47);
  send_raw(48);
  send_raw(60'000);
  send(socket, good(), Contents(datagram_bytes_max + 1)), ++refused;  // longer than any packet
  send(socket, good(), Bytes(mine).first(5)), ++refused;              // no slot in it
  send(socket, good(), {}), ++refused;
  send(socket, good(), packet_for(Slot{static_cast<std::uint8_t>(port_->slot().value + 1)})), ++refused;
  HandOverMessage elsewhere = good();
  elsewhere.destination = IpAddress::v4(10, 0, 0, 1);
  send(socket, elsewhere, mine), ++refused;  // not an address of ours
  HandOverMessage answer = good();
  answer.kind = HandOverMessage::Kind::answer;
  send(socket, answer, Contents(7)), ++refused;  // half a nonce
  expect_refused(refused);

  send(socket, answer, Contents(8));  // a nonce that is not ours: no effect
  send(socket, good(), mine);
  EXPECT_EQ(receive_copies(*port_, 1).size(), 1u);
  EXPECT_EQ(port_->counters().hand_over_refused, refused);
}

TEST_F(Hostile, RandomMessagesDoNoHarm) {
  const std::uint64_t seed = secure_random();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  Prng random(seed);
  const Descriptor socket = connect_to_port();
  for (int i = 0; i < 2000; ++i) {
    const HandOverHeader header = encode(good());
    Contents bytes(header.begin(), header.end());
    bytes.resize(48 + random.below(64));
    for (int flips = 0; flips < 3; ++flips)
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random.next());
    bytes.resize(1 + random.below(bytes.size()));
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (i % 16 == 0) pump(*port_, 20);
  }
  send(socket, good(), packet_for(port_->slot(), 77));
  EXPECT_TRUE(pump_until(*port_, [&] { return port_->counters().taken_over > 0; }));
}

TEST_F(Hostile, BothWaysInRespectASmallSpan) {
  const Descriptor socket = connect_to_port();
  Stranger stranger(address_);
  constexpr std::size_t each = 40, span = 3;
  for (std::uint32_t i = 0; i < each; ++i) {
    send(socket, good(), packet_for(port_->slot(), i));
    stranger.send(address_, packet_for(port_->slot(), i));
  }
  std::array<InPacket, 64> out;
  for (InPacket& packet : out) packet.source_port = 1;
  std::size_t got = 0;
  const TimePoint deadline = port_->now() + patience;
  while (got < 2 * each && port_->now() < deadline) {
    port_->wait(port_->now());
    const std::size_t filled = port_->receive(std::span(out).first(span));
    ASSERT_LE(filled, span);
    got += filled;
    for (std::size_t i = span; i < out.size(); ++i)
      ASSERT_EQ(out[i].source_port, 1) << "written behind the span";
  }
  EXPECT_EQ(got, 2 * each);
}

TEST_F(Hostile, ManyConnectionsAreBounded) {
  // Both ends of the crowd's connections are in this process, which must have some descriptors left.
  constexpr rlim_t most = 600;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t crowd_size = std::min(most, (limit.rlim_cur - open_descriptors()) / 3);
  std::vector<Descriptor> crowd;
  // Other processes of this host may join and leave meanwhile: a connection each.
  constexpr std::ptrdiff_t neighbours = 64;
  const auto before = static_cast<std::ptrdiff_t>(open_descriptors());
  const auto gained = [&] { return static_cast<std::ptrdiff_t>(open_descriptors()) - before; };
  for (rlim_t i = 0; i < crowd_size; ++i) {
    Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const SlotName name(port_->slot());
    if (::connect(socket.get(), name.get(), name.length) == 0) crowd.push_back(std::move(socket));
    if (i % 100 == 0) pump(*port_, 50);
  }
  pump(*port_, 100);
  EXPECT_LE(gained() - static_cast<std::ptrdiff_t>(crowd.size()), 512 + neighbours);
  crowd.clear();
  pump_until(*port_, [&] { return gained() <= neighbours; });
  EXPECT_LE(gained(), neighbours);
}

TEST_F(Hostile, AForeignUserIsTurnedAway) {
  if (!is_root()) {
    std::puts("needs root to be another user: not run");
    return;
  }
  const Packet packet = packet_for(port_->slot());
  EXPECT_EQ(run_as(nobody,
                   [&] {
                     const Descriptor socket = connect_to_port();
                     send(socket, good(), packet);
                     return ::testing::Test::HasFailure() ? 1 : 0;
                   }),
            0);
  expect_refused(1);
}

TEST_F(Hostile, NothingIsHandedToAForeignUserWhoTookASlot) {
  if (!is_root()) {
    std::puts("needs root to be another user: not run");
    return;
  }
  int line[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line), 0);
  const Descriptor ours(line[0]), theirs(line[1]);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::setresuid(nobody, nobody, nobody) != 0) ::_exit(1);
    auto squatter = HandOver::create();
    const Slot slot = squatter ? (*squatter)->slot() : Slot{};
    ::send(theirs.get(), &slot, sizeof slot, 0);
    char go;
    ::recv(theirs.get(), &go, 1, 0);
    HandOver::Received got[16];
    std::uint64_t refused = 0;
    std::size_t count = 0;
    for (int i = 0; i < 100; ++i) count += (*squatter)->receive(got, refused);
    ::_exit(count == 0 ? 0 : 2);
  }
  Slot squatted;
  ASSERT_EQ(::recv(ours.get(), &squatted, sizeof squatted, 0), 1);
  Stranger stranger(address_);
  stranger.send(address_, packet_for(squatted));
  EXPECT_TRUE(pump_until(*port_, [&] { return port_->counters().hand_over_refused == 1; }));
  EXPECT_EQ(port_->counters().handed_over, 0u);
  EXPECT_EQ(::send(ours.get(), "", 1, 0), 1);
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0) << "the foreign user got a packet";
}

}  // namespace
}  // namespace beeline::port::test
