// The card on real UDP sockets, with its progress thread, in one process.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "nic/card_fixture.h"
#include "nic/fake_network.h"
#include "nic/real_ports.h"
#include "port/udp/udp_port.h"

namespace beeline::nic::test {
namespace {

using proto::PostResult;
using proto::WcStatus;
using proto::WrOpcode;

std::unique_ptr<Card> open_udp_card(const IpAddress& address, Lane lane, bool thread = true,
                                    IcrcCheck icrc = IcrcCheck::automatic) {
  const port::Interface interface = interface_with(address);
  Config config;
  config.lane = lane;
  auto port = value_of(port::make_udp_port(icrc));
  return value_of(Card::create(config, std::move(port), {&interface, 1}, thread));
}

// What came in over this lane, and over the others.
std::uint64_t received(Card& card, Lane lane) {
  const CardCounters counters = card.counters();
  return lane == Lane::local ? counters.local_payload_received : counters.wire_payload_received;
}
std::uint64_t received_otherwise(Card& card, Lane lane) {
  return received(card, lane == Lane::local ? Lane::wire : Lane::local);
}

struct CardKind {
  const char* name;
  bool thread;
  IcrcCheck icrc;  // automatic: strict where we may
  Lane lane = Lane::wire;
};

class CardUdpTest : public ::testing::TestWithParam<CardKind> {
 protected:
  std::unique_ptr<Card> left_card_ =
      open_udp_card(own_address(1), GetParam().lane, GetParam().thread, GetParam().icrc);
  std::unique_ptr<Card> right_card_ =
      open_udp_card(own_address(2), GetParam().lane, GetParam().thread, GetParam().icrc);
};

INSTANTIATE_TEST_SUITE_P(, CardUdpTest,
                         ::testing::Values(CardKind{"PolledPlain", false, IcrcCheck::plain},
                                           CardKind{"PolledStrict", false, IcrcCheck::automatic},
                                           CardKind{"WithThreadPlain", true, IcrcCheck::plain},
                                           CardKind{"WithThreadStrict", true, IcrcCheck::automatic},
                                           CardKind{"PolledLocal", false, IcrcCheck::plain, Lane::local},
                                           CardKind{"WithThreadLocal", true, IcrcCheck::plain, Lane::local}),
                         [](const auto& row) { return row.param.name; });

TEST_P(CardUdpTest, SendWriteAndReadOfManySizes) {
  End left(*left_card_, patient_options()), right(*right_card_, patient_options());
  connect(left, right);
  for (const std::size_t bytes : {0, 1, 5, 1024, 1025, 4096, 4097, 65536, 200001}) {
    left.fill(0, bytes, static_cast<std::uint32_t>(bytes));
    ASSERT_EQ(right.receive(1, 300000, 300000), PostResult::ok);
    ASSERT_EQ(left.post(WrOpcode::send, 1, 0, bytes), PostResult::ok);
    ASSERT_EQ(left.post(WrOpcode::write, 2, 0, bytes), PostResult::ok);
    ASSERT_EQ(left.post(WrOpcode::read, 3, 600000, bytes), PostResult::ok);
    ASSERT_TRUE(until([&] { return left.done.size() == 3 && right.done.size() == 1; },
                      [&] {
                        left.poll();
                        right.poll();
                      }))
        << bytes;
    ASSERT_FALSE(left.failed() || right.failed()) << bytes;
    EXPECT_EQ(right.done[0].byte_length, bytes);
    ASSERT_EQ(std::memcmp(right.memory().data() + 300000, left.memory().data(), bytes), 0) << bytes;
    ASSERT_EQ(std::memcmp(right.memory().data(), left.memory().data(), bytes), 0) << bytes;
    ASSERT_EQ(std::memcmp(left.memory().data() + 600000, left.memory().data(), bytes), 0) << bytes;
    left.done.clear();
    right.done.clear();
  }
  const auto counters = right_card_->counters();
  EXPECT_EQ(counters.icrc_bad, 0u);
  EXPECT_EQ(counters.icrc_affine, 0u) << "our own senders are checked strictly";
  EXPECT_GT(received(*right_card_, GetParam().lane), 400000u);
  EXPECT_EQ(received_otherwise(*right_card_, GetParam().lane), 0u);
}

class CardThreads : public ::testing::TestWithParam<Lane> {
 protected:
  std::unique_ptr<Card> make_udp_card(const IpAddress& address) { return open_udp_card(address, GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(, CardThreads, ::testing::Values(Lane::wire, Lane::local),
                         [](const auto& lane) { return lane.param == Lane::wire ? "Wire" : "Local"; });

// The acknowledgement may wait for an answer of the program; if that does nothing any more, the card sees to
// it.
TEST_P(CardThreads, AMessageIsAcknowledgedThoughItsProgramDoesNothingMore) {
  auto left_card = make_udp_card(own_address(1)), right_card = make_udp_card(own_address(2));
  End left(*left_card, patient_options()), right(*right_card, patient_options());
  connect(left, right);
  for (std::uint64_t i = 1; i <= 20; ++i) {
    ASSERT_EQ(right.receive(i, 0, 64), PostResult::ok);
    ASSERT_EQ(left.post(WrOpcode::send, i, 0, 4), PostResult::ok);
    ASSERT_TRUE(until([&] { return right.done.size() == i; }, [&] { right.poll(); }));
    ASSERT_TRUE(until([&] { return left.done.size() == i; }, [&] { left.poll(); })) << i;
  }
  EXPECT_FALSE(left.failed() || right.failed());
}

TEST_P(CardThreads, OneSidedOperationsNeedNoHelpFromTheTarget) {
  auto left_card = make_udp_card(own_address(1)), right_card = make_udp_card(own_address(2));
  End left(*left_card, patient_options()), right(*right_card, patient_options());
  connect(left, right);
  left.fill(0, 100000, 3);
  ASSERT_EQ(left.post(WrOpcode::write, 1, 0, 100000), PostResult::ok);
  ASSERT_EQ(left.post(WrOpcode::read, 2, 300000, 100000), PostResult::ok);
  ASSERT_TRUE(until([&] { return left.done.size() == 2; }, [&] { left.poll(); }));
  EXPECT_FALSE(left.failed());
  EXPECT_EQ(std::memcmp(left.memory().data() + 300000, left.memory().data(), 100000), 0);
}

TEST_P(CardThreads, PostingAloneIsEnough) {
  auto left_card = make_udp_card(own_address(1)), right_card = make_udp_card(own_address(2));
  std::atomic<int> bells{0};
  EndOptions options = patient_options();
  options.notifier = [](void* cookie) { ++*static_cast<std::atomic<int>*>(cookie); };
  options.cookie = &bells;
  End left(*left_card, options), right(*right_card, options);
  connect(left, right);
  for (int i = 0; i < 200; ++i) {
    bells = 0;
    left_card->arm_cq(left.cq(), false);
    ASSERT_EQ(left.post(WrOpcode::write, 1, 0, 20000), PostResult::ok);
    // As in ibv_get_cq_event: the thread does everything.
    ASSERT_TRUE(until([&] { return bells > 0; }, [] { std::this_thread::yield(); }));
    left.poll();
    ASSERT_EQ(left.done.size(), static_cast<std::size_t>(i + 1));
  }
  EXPECT_FALSE(left.failed());
}

TEST_P(CardThreads, PingPongOfPollingThreads) {
  auto left_card = make_udp_card(own_address(1)), right_card = make_udp_card(own_address(2));
  End left(*left_card, patient_options()), right(*right_card, patient_options());
  connect(left, right);
  constexpr std::size_t rounds = 300;
  const auto play = [](End& end, bool serves) {
    for (std::uint64_t i = 0; i < 64; ++i) ASSERT_EQ(end.receive(i, 0, 4096), PostResult::ok);
    for (std::size_t i = 0; i < rounds; ++i) {
      if (serves) {
        ASSERT_EQ(end.post(WrOpcode::send, 1000, 4096, 64), PostResult::ok);
      }
      const auto received = [&] {
        return std::count_if(end.done.begin(), end.done.end(), [](const auto& c) { return c.is_receive; });
      };
      ASSERT_TRUE(until([&] { return static_cast<std::size_t>(received()) > i; }, [&] { end.poll(); }));
      ASSERT_EQ(end.receive(i, 0, 4096), PostResult::ok);
      if (!serves) {
        ASSERT_EQ(end.post(WrOpcode::send, 1000, 4096, 64), PostResult::ok);
      }
    }
  };
  std::thread other([&] { play(right, false); });
  play(left, true);
  other.join();
  EXPECT_FALSE(left.failed() || right.failed());
}

TEST_P(CardThreads, ManyThreadsPostAndPoll) {
  auto left_card = make_udp_card(own_address(1)), right_card = make_udp_card(own_address(2));
  constexpr std::size_t pairs = 4, messages = 100;
  std::vector<std::unique_ptr<End>> lefts, rights;
  EndOptions options = patient_options();
  options.memory_bytes = 100000;
  for (std::size_t i = 0; i < pairs; ++i) {
    lefts.push_back(std::make_unique<End>(*left_card, options));
    rights.push_back(std::make_unique<End>(*right_card, options));
    connect(*lefts[i], *rights[i]);
  }
  std::vector<std::thread> threads;
  threads.reserve(pairs);
  std::atomic<int> failures{0};
  for (auto& end : lefts)
    threads.emplace_back([&failures, &end] {
      std::size_t posted = 0;
      const bool finished = until([&] { return end->done.size() == messages; },
                                  [&] {
                                    if (posted < messages && posted - end->done.size() < 16)
                                      posted +=
                                          end->post(WrOpcode::write, posted, 0, 50000) == PostResult::ok;
                                    end->poll();
                                  });
      if (!finished || end->failed()) ++failures;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

// Whoever holds the engine may take over requests of others: it must see to them, or wake the thread.
TEST_P(CardThreads, PostsAreNotLostWhileQueuePairsComeAndGo) {
  auto left_card = make_udp_card(own_address(1)), right_card = make_udp_card(own_address(2));
  std::atomic<int> bells{0};
  EndOptions options = patient_options();
  options.notifier = [](void* cookie) { ++*static_cast<std::atomic<int>*>(cookie); };
  options.cookie = &bells;
  End left(*left_card, options), right(*right_card, options);
  connect(left, right);
  std::atomic<bool> stop{false};
  std::thread changer([&] {
    EndOptions small;
    small.memory_bytes = 16;
    while (!stop) End coming_and_going(*left_card, small);
  });
  for (int i = 0; i < 300; ++i) {
    bells = 0;
    left_card->arm_cq(left.cq(), false);
    EXPECT_EQ(left.post(WrOpcode::write, 1, 0, 64), PostResult::ok);
    EXPECT_TRUE(until([&] { return bells > 0; }, [] { std::this_thread::yield(); }));
    left.poll();
  }
  stop = true;
  changer.join();
  EXPECT_EQ(left.done.size(), 300u);
  EXPECT_FALSE(left.failed());
}

// The same request again and again.
void write_until_failure(End& end, const proto::SendWr& wr) {
  std::size_t posted = 0;
  EXPECT_TRUE(until([&] { return end.failed(); },
                    [&] {
                      if (posted - end.done.size() < 16)
                        posted += end.card().post_send(end.qp(), wr) == PostResult::ok ? 1 : 0;
                      end.poll();
                    }));
}

TEST_P(CardThreads, NothingLandsAfterDeregistration) {
  auto left_card = make_udp_card(own_address(1)), right_card = make_udp_card(own_address(2));
  for (int round = 0; round < 20; ++round) {
    End left(*left_card, patient_options()), right(*right_card, patient_options());
    connect(left, right);
    const auto before = received(*right_card, GetParam()) + 100000;
    std::fill(left.memory().begin(), left.memory().end(), std::byte{0xEE});
    const proto::Sge piece = left.sge(0, 500000);
    proto::SendWr wr;
    wr.opcode = WrOpcode::write;
    wr.signaled = true;
    wr.remote_address = right.address_of(0);
    wr.rkey = right.keys().rkey;
    wr.sges = {&piece, 1};
    std::thread writer([&] { write_until_failure(left, wr); });
    const auto& memory = right.memory();
    EXPECT_TRUE(
        until([&] { return received(*right_card, GetParam()) > before; }, [] { std::this_thread::yield(); }));
    right.deregister();
    std::fill(right.memory().begin(), right.memory().end(), std::byte{0});
    writer.join();
    EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{0}), static_cast<long>(memory.size()))
        << round;
  }
}

TEST_P(CardThreads, MemoryUnmappedInMidTransferIsAnErrorOnBothSides) {
  auto left_card = make_udp_card(own_address(1)), right_card = make_udp_card(own_address(2));
  constexpr std::size_t bytes = 1 << 20;
  for (const bool sender_loses : {true, false}) {
    End left(*left_card, patient_options()), right(*right_card, patient_options());
    connect(left, right);
    void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void* kept = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void* from = sender_loses ? mapped : kept;
    void* to = sender_loses ? kept : mapped;
    const auto from_keys = value_of(left_card->register_region(left.domain(), from, bytes, 0, full_access));
    const auto to_keys = value_of(right_card->register_region(right.domain(), to, bytes, 0, full_access));
    const proto::Sge piece{0, bytes, from_keys.lkey};
    proto::SendWr wr;
    wr.opcode = WrOpcode::write;
    wr.signaled = true;
    wr.rkey = to_keys.rkey;
    wr.sges = {&piece, 1};
    const auto before = received(*right_card, GetParam());
    std::thread writer([&] { write_until_failure(left, wr); });
    EXPECT_TRUE(
        until([&] { return received(*right_card, GetParam()) > before; }, [] { std::this_thread::yield(); }));
    take_away(mapped, bytes);
    writer.join();
    const auto failure = std::find_if(left.done.begin(), left.done.end(),
                                      [](const auto& c) { return c.status != WcStatus::success; });
    ASSERT_NE(failure, left.done.end());
    const WcStatus status = failure->status;
    if (sender_loses)
      EXPECT_EQ(status, WcStatus::local_protection_error);
    else
      EXPECT_TRUE(status == WcStatus::remote_access_error || status == WcStatus::remote_operation_error);
    succeeds(left_card->deregister_region(from_keys.lkey));
    succeeds(right_card->deregister_region(to_keys.lkey));
    ::munmap(kept, bytes);
    ::munmap(mapped, bytes);
  }
}

TEST_P(CardThreads, GarbageOnTheRealPortCostsCountersOnly) {
  auto left_card = make_udp_card(own_address(1)), right_card = make_udp_card(own_address(2));
  End left(*left_card, patient_options()), right(*right_card, patient_options());
  connect(left, right);
  const int stranger = ::socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(4791);
  std::memcpy(&to.sin_addr, right.address().gid.bytes.data() + 12, 4);
  Prng random(9);
  const auto slot = static_cast<std::byte>(right.address().qpn.value >> 16);
  for (int i = 0; i < 500; ++i) {
    std::vector<std::byte> bytes(random.below(3000));
    for (auto& b : bytes) b = static_cast<std::byte>(random.next());
    if (bytes.size() > 5) bytes[5] = slot;
    // A full buffer may drop some of it, which is as good.
    (void)::sendto(stranger, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to);
    if (i % 50 == 49) right.poll();
  }
  ::close(stranger);
  ASSERT_TRUE(until([&] { return right_card->counters().malformed > 10; }, [&] { right.poll(); }));
  ASSERT_EQ(left.post(WrOpcode::write, 1, 0, 5000), PostResult::ok);
  ASSERT_TRUE(until([&] { return !left.done.empty(); }, [&] { left.poll(); }));
  EXPECT_FALSE(left.failed());
}

// --- Sleep

TEST(CardThread, IdleThreadSleepsForEver) {
  FakeNetwork network(FakeNetwork::Clock::real);
  auto port = network.make_port(1);
  FakePort& seen = *port;
  const port::Interface interface = interface_with(own_address(1));
  auto card = value_of(Card::create(Config{}, std::move(port), {&interface, 1}, true));
  End idle(*card);
  ASSERT_TRUE(until([&] { return seen.waits > 0; }, [] { std::this_thread::yield(); }));
  const int before = seen.waits;
  std::this_thread::sleep_for(200ms);
  EXPECT_LE(seen.waits - before, 3) << "nothing to do, but it wakes up";
}

// How often the thread named "beeline" of this process went to sleep.
long sleeps_of_the_thread() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    bool ours = false;
    for (std::string line; std::getline(status, line);) {
      ours = ours || line == "Name:\tbeeline";
      if (ours && line.rfind("voluntary_ctxt_switches:", 0) == 0) return std::stol(line.substr(24));
    }
  }
  return -1;
}

TEST_P(CardThreads, IdleThreadSleepsOnRealSocketsToo) {
  auto card = make_udp_card(own_address(1));
  End end(*card, patient_options());
  end.connect(end.address());
  long before = 0;
  // Opening sockets has some aftermath in the port; then it is quiet.
  ASSERT_TRUE(until(
      [&] {
        before = sleeps_of_the_thread();
        std::this_thread::sleep_for(200ms);
        return sleeps_of_the_thread() - before <= 3;
      },
      [] {}));
  EXPECT_GE(before, 0) << "there is no such thread";
}

TEST(CardThread, ThreadTicksWhileSomebodyPollsAndListensAgainAfterwards) {
  FakeNetwork network(FakeNetwork::Clock::real);
  auto left_port = network.make_port(1), right_port = network.make_port(2);
  FakePort& seen = *right_port;
  const port::Interface left_interface = interface_with(own_address(1)),
                        right_interface = interface_with(own_address(2));
  auto left_card = value_of(Card::create(Config{}, std::move(left_port), {&left_interface, 1}, true));
  auto right_card = value_of(Card::create(Config{}, std::move(right_port), {&right_interface, 1}, true));
  End left(*left_card, patient_options()), right(*right_card, patient_options());
  connect(left, right);
  // On a machine under load the poller itself may pause, and the thread rightly takes over: so
  // one quiet series of many is enough. Without ticking there is none.
  constexpr int writes = 100;
  int waits = writes;
  EXPECT_TRUE(until([&] { return waits < writes / 4; },
                    [&] {
                      const int start = seen.waits;
                      for (int i = 0; i < writes; ++i) {
                        left.done.clear();
                        ASSERT_EQ(left.post(WrOpcode::write, 1, 0, 64), PostResult::ok);
                        ASSERT_TRUE(until([&] { return !left.done.empty(); },
                                          [&] {
                                            left.poll();
                                            right.poll();
                                          }));
                      }
                      waits = seen.waits - start;
                    }))
      << "it wakes up for the datagrams that the poller takes";
  ASSERT_TRUE(until([&] { return seen.asleep.load(); }, [] { std::this_thread::yield(); }))
      << "it takes over";
}

}  // namespace
}  // namespace beeline::nic::test
