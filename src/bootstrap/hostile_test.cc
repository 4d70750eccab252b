// What strangers, dead peers and stopped ones may cost: nothing, one clear message, nothing.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>

#include <atomic>

#include "base/random.h"
#include "bootstrap/meeting.h"
#include "bootstrap/record.h"
#include "bootstrap/store_protocol.h"
#include "bootstrap/tcp_store.h"
#include "bootstrap/test_support.h"

namespace beeline::bootstrap {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A rank in a process of its own; it runs `body` once the group has met. Killed when the test ends.
class RankProcess {
 public:
  RankProcess(const GroupOptions& options, const std::string& host_port,
              const std::function<void(Group&)>& body)
      : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto group = Group::meet_at(options, host_port);
    if (!group) ::_exit(1);
    body(**group);
    ::_exit(0);
  }
  ~RankProcess() { send_signal(SIGKILL), ::waitpid(pid_, nullptr, 0); }
  void send_signal(int number) const { ::kill(pid_, number); }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

void sleep_for_long(Group&) { std::this_thread::sleep_for(10min); }

TEST(Hostile, AKilledRankIsNamedByAllWithinFiveSeconds) {
  const ReservedPort port;
  RankProcess victim(options_for(2, 3), port.host_port(), sleep_for_long);
  std::vector<std::unique_ptr<Group>> groups(2);
  in_parallel(2, [&](int r) {
    groups[static_cast<std::size_t>(r)] = *Group::meet_at(options_for(r, 3), port.host_port());
  });
  EXPECT_FALSE(groups[0]->poll_failure().has_value());
  victim.send_signal(SIGKILL);
  for (const auto& group : groups) {
    const auto failure = wait_for_failure(*group, 5s);
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(failure->rank, Rank{2});
    EXPECT_EQ(failure->error.code, Errc::peer_lost);
    EXPECT_EQ(failure->error.message,
              fmt::format("rank 2 (pid {} on {}) is gone: its process ended or its connection "
                          "broke",
                          victim.pid(), own_identity().host));
    // It stays so, and is what an exchange gives too.
    EXPECT_EQ(group->poll_failure()->rank, Rank{2});
    EXPECT_EQ(group->all_gather({}, 60s).error().code, Errc::peer_lost);
    pollfd quiet{group->wait_descriptor(), POLLIN, 0};
    EXPECT_EQ(::poll(&quiet, 1, 0), 0) << "a dead connection must not keep the caller spinning";
  }
}

TEST(Hostile, ARankThatExitsWithoutGoodbyeIsGone) {
  const ReservedPort port;
  RankProcess victim(options_for(1, 2), port.host_port(), [](Group&) { ::_exit(0); });
  const auto group = *Group::meet_at(options_for(0, 2), port.host_port());
  const auto failure = wait_for_failure(*group, 5s);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->error.code, Errc::peer_lost);
}

TEST(Hostile, AStoppedRankIsNotGone) {
  const ReservedPort port;
  RankProcess stopped(options_for(1, 2), port.host_port(), [](Group& group) {
    if (group.all_gather({}, 60s)) sleep_for_long(group);
  });
  const auto group = *Group::meet_at(options_for(0, 2), port.host_port());
  stopped.send_signal(SIGSTOP);
  // More than its kernel takes for it, for longer than any keepalive waits.
  const auto all = group->all_gather(std::vector<std::byte>(8u << 20), 6s);
  ASSERT_FALSE(all.has_value());
  EXPECT_EQ(all.error().code, Errc::timed_out) << all.error().message;
  EXPECT_FALSE(group->poll_failure().has_value());
}

TEST(Hostile, AChildOfAForkDoesNotKeepTheConnectionsOpen) {
  const ReservedPort port;
  std::array<int, 2> lifeline{};
  ASSERT_EQ(::pipe2(lifeline.data(), O_CLOEXEC), 0);
  const Descriptor child_end(lifeline[0]);
  Descriptor our_end(lifeline[1]);
  // Rank 1 forks a child that outlives it, and lives as long as this test.
  RankProcess victim(options_for(1, 2), port.host_port(), [&](Group& group) {
    our_end.reset();
    if (::fork() == 0) {
      group.abandon_after_fork();
      char nothing = 0;
      (void)!::read(child_end.get(), &nothing, 1);
      ::_exit(0);
    }
    sleep_for_long(group);
  });
  const auto group = *Group::meet_at(options_for(0, 2), port.host_port());
  EXPECT_FALSE(wait_for_failure(*group, 200ms).has_value())
      << "abandoning must not end the parent's connection";
  victim.send_signal(SIGKILL);
  EXPECT_TRUE(wait_for_failure(*group, 5s).has_value());
}

TEST(Hostile, ARankThatDiesWhileTheGroupMeetsIsNamed) {
  const ReservedPort port;
  const pid_t victim = ::fork();
  if (victim == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)Group::meet_at(options_for(1, 3), port.host_port());
    ::_exit(0);
  }
  std::thread killer([&] {
    std::this_thread::sleep_for(500ms);
    ::kill(victim, SIGKILL);
    ::waitpid(victim, nullptr, 0);
  });
  const auto group = Group::meet_at(options_for(0, 3), port.host_port());  // rank 2 never comes
  killer.join();
  ASSERT_FALSE(group.has_value());
  EXPECT_EQ(group.error().code, Errc::peer_lost) << group.error().message;
  EXPECT_THAT(group.error().message, HasSubstr(fmt::format("rank 1 (pid {}", victim)));
}

// Connects to `endpoint` again and again and misbehaves, until stopped.
class Vandal {
 public:
  explicit Vandal(Endpoint endpoint) : thread_([this, endpoint] { run(endpoint); }) {}
  ~Vandal() { stop_ = true, thread_.join(); }

 private:
  void run(const Endpoint& endpoint) {
    Prng prng(7);
    std::vector<Descriptor> silent;
    while (!stop_) {
      auto fd = connect_to(endpoint, Deadline(1s));
      if (!fd) {
        std::this_thread::sleep_for(1ms);
        continue;
      }
      std::vector<std::byte> noise(prng.below(300));
      for (auto& byte : noise) byte = static_cast<std::byte>(prng.next());
      if (prng.chance(0.5) && noise.size() >= 8) {  // a frame header, then noise
        store_be32(noise.data(), 0xBEE10000u | static_cast<std::uint32_t>(prng.below(16) << 8));
        store_be32(noise.data() + 4, static_cast<std::uint32_t>(prng.below(400)));
      }
      (void)!::send(fd->get(), noise.data(), noise.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (prng.chance(0.3) && silent.size() < 200) silent.push_back(std::move(*fd));
      std::this_thread::sleep_for(200us);
    }
  }
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST(Hostile, GarbageAtTheMeetingPointCostsNothing) {
  const ReservedPort port;
  const Vandal vandal({IpAddress::v4(127, 0, 0, 1), port.port()});
  for (int round = 0; round < 5; ++round) {
    const auto groups = meet_in_threads(4, port.host_port());
    for (const auto& group : groups) ASSERT_NE(group, nullptr);
  }
}

TEST(Hostile, GarbageAtARanksDoorCostsNothing) {
  MemoryStore store;
  std::vector<std::unique_ptr<Vandal>> vandals;
  std::vector<std::thread> ranks;
  std::atomic<int> met{0};
  const auto come = [&](int r) {
    const auto group = Group::meet(options_for(r, 3), store);
    EXPECT_TRUE(group.has_value()) << group.error().message;
    if (group) ++met;
  };
  ranks.emplace_back(come, 0);
  const auto entry = decode_entry(*store.get("beeline/default/0", 60s));
  ASSERT_TRUE(entry.has_value());
  for (const Endpoint& endpoint : entry->endpoints) vandals.push_back(std::make_unique<Vandal>(endpoint));
  std::this_thread::sleep_for(300ms);
  ranks.emplace_back(come, 2);
  ranks.emplace_back(come, 1);
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(met, 3);
}

TEST(Hostile, AListenerThatIsNotTheRankIsNoticed) {
  // The store's entry leads to somebody who accepts and echoes; rank 1 must not take that for rank 0.
  const auto impostor = *listen_on({IpAddress::v4(127, 0, 0, 1), 0});
  Entry entry;
  entry.identity = own_identity();
  entry.host_key = own_host_key();
  entry.endpoints = {*local_endpoint(impostor.get())};
  MemoryStore store;
  ASSERT_TRUE(store.set("beeline/default/0", encode_entry(entry)).has_value());
  std::atomic<bool> stop{false};
  std::thread echo([&] {
    std::vector<Descriptor> clients;
    std::array<std::byte, 256> buffer{};
    while (!stop) {
      if (auto fd = accept_one(impostor.get())) clients.push_back(std::move(fd));
      for (const auto& fd : clients)
        if (const auto got = ::recv(fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT); got > 0)
          (void)!::send(fd.get(), buffer.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL);
      std::this_thread::sleep_for(1ms);
    }
  });
  const auto group = Group::meet(options_for(1, 2, 1s), store);
  stop = true;
  echo.join();
  ASSERT_FALSE(group.has_value());
  EXPECT_EQ(group.error().code, Errc::timed_out);
  EXPECT_THAT(group.error().message, HasSubstr("rank 0 of 2 did not come"));
}

TEST(Hostile, AStoreFullOfNonsenseIsAnError) {
  MemoryStore store;
  ASSERT_TRUE(store.set("beeline/default/0", bytes_of("hello")).has_value());
  EXPECT_EQ(Group::meet(options_for(1, 2, 1s), store).error().code, Errc::protocol);
}

TEST(Hostile, AnotherServiceAtTheMeetingPointIsAnError) {
  const auto listener = *listen_on({IpAddress::v4(127, 0, 0, 1), 0});
  std::thread web_server([&] {
    if (!*wait_for(listener.get(), POLLIN, Deadline(30s))) return;
    const auto client = accept_one(listener.get());
    const auto page = bytes_of("HTTP/1.1 400 Bad Request\r\n\r\n");
    (void)!::send(client.get(), page.data(), page.size(), MSG_NOSIGNAL);
    std::this_thread::sleep_for(200ms);
  });
  const auto place = to_string(*local_endpoint(listener.get()));
  const auto group = Group::meet_at(options_for(1, 2, 20s), place);
  web_server.join();
  ASSERT_FALSE(group.has_value());
  EXPECT_EQ(group.error().code, Errc::protocol);
  EXPECT_THAT(group.error().message, AllOf(HasSubstr(place), HasSubstr("does not speak Beeline's protocol")));
}

TEST(Hostile, EntriesThatAreCutOrMutatedNeverCrash) {
  Entry entry;
  entry.identity = {4711, "node-a"};
  entry.host_key = "boot/1";
  entry.endpoints = {{IpAddress::v4(10, 0, 0, 1), 5}, {*parse_address("fd00::1"), 6}};
  const auto good = encode_entry(entry);
  ASSERT_TRUE(decode_entry(good).has_value());
  EXPECT_EQ(decode_entry(good)->endpoints, entry.endpoints);
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(decode_entry(Bytes(good).first(size)).has_value()) << size;
  Prng prng(1);
  for (int i = 0; i < 20000; ++i) {
    auto bad = good;
    bad[prng.below(bad.size())] = static_cast<std::byte>(prng.next());
    const auto decoded = decode_entry(bad);
    EXPECT_LE(decoded ? decoded->endpoints.size() : 0, 32u);
  }
}

// An entry whose every part is written by hand.
std::vector<std::byte> odd_entry(std::size_t knock_bytes, std::size_t answer_bytes, std::size_t address_bytes,
                                 std::uint8_t endpoints) {
  const std::vector<std::byte> filler(32, std::byte{7});
  RecordWriter out;
  out.u64(1).bytes(Bytes(filler).first(knock_bytes)).bytes(Bytes(filler).first(answer_bytes));
  out.u32(4711).text("node-a").text("boot/1").u8(endpoints);
  for (int i = 0; i < endpoints; ++i) out.bytes(Bytes(filler).first(address_bytes)).u16(5);
  return out.take();
}

TEST(Hostile, EntriesWithPartsOfAWrongSizeAreRefused) {
  ASSERT_TRUE(decode_entry(odd_entry(16, 16, 16, 32)).has_value());
  for (const std::size_t size : {0, 1, 15, 17})
    for (const auto& entry :
         {odd_entry(size, 16, 16, 1), odd_entry(16, size, 16, 1), odd_entry(16, 16, size, 1)}) {
      const auto decoded = decode_entry(entry);
      ASSERT_FALSE(decoded.has_value()) << size;
      EXPECT_EQ(decoded.error().code, Errc::protocol);
      EXPECT_THAT(decoded.error().message, HasSubstr("is not a Beeline rank's entry"));
    }
}

TEST(Hostile, EntriesWithTooManyAddressesAreRefused) {
  for (const int count : {33, 255}) {
    const auto decoded = decode_entry(odd_entry(16, 16, 16, static_cast<std::uint8_t>(count)));
    ASSERT_FALSE(decoded.has_value());
    EXPECT_EQ(decoded.error().code, Errc::protocol);
    EXPECT_THAT(decoded.error().message,
                HasSubstr(fmt::format("lists {} addresses, and 32 are the most", count)));
  }
}

TEST(Frames, ArriveWholeHoweverTheyAreCut) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Descriptor from(ends[0]), to(ends[1]);
  const auto one = encode_frame(3, bytes_of("hello")), two = encode_frame(4, {});
  std::vector<std::byte> stream = one;
  stream.insert(stream.end(), two.begin(), two.end());
  FrameReader reader(100);
  std::vector<Frame> got;
  for (const std::byte byte : stream) {
    ASSERT_EQ(::send(from.get(), &byte, 1, 0), 1);
    Frame frame;
    const auto outcome = reader.read(to.get(), frame);
    ASSERT_TRUE(outcome.has_value());
    if (*outcome == ReadOutcome::frame) got.push_back(frame);
  }
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].type, 3);
  EXPECT_EQ(got[0].body, bytes_of("hello"));
  EXPECT_EQ(got[1].type, 4);
  EXPECT_TRUE(got[1].body.empty());
}

TEST(Frames, TooLongOnesAreRefusedBeforeTheyCome) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Descriptor from(ends[0]), to(ends[1]);
  const auto frame_bytes = encode_frame(1, std::vector<std::byte>(101));
  ASSERT_EQ(::send(from.get(), frame_bytes.data(), frame_header_bytes, 0),
            static_cast<ssize_t>(frame_header_bytes));
  FrameReader reader(100);
  Frame frame;
  EXPECT_EQ(reader.read(to.get(), frame).error().code, Errc::protocol);
}

TEST(StoreServer, LimitsKeysAndValues) {
  auto server = *StoreServer::start({"g", 2, Rank{0}, "me"}, {{IpAddress::v4(127, 0, 0, 1), 0}});
  EXPECT_TRUE(server->set("key", bytes_of("value")).has_value());
  EXPECT_EQ(*server->get("key", 1s), bytes_of("value"));
  EXPECT_FALSE(server->set(std::string(store_max_key_bytes + 1, 'k'), {}).has_value());
  EXPECT_FALSE(server->set("key", std::vector<std::byte>(store_max_value_bytes + 1)).has_value());
  EXPECT_EQ(server->get("other", 10ms).error().code, Errc::timed_out);
}

}  // namespace
}  // namespace beeline::bootstrap
