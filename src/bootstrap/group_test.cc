#include <gmock/gmock.h>
#include <poll.h>

#include <atomic>
#include <future>

#include "base/random.h"
#include "bootstrap/link.h"
#include "bootstrap/meeting.h"
#include "bootstrap/test_support.h"

namespace beeline::bootstrap {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::byte> random_bytes(std::uint64_t seed, std::size_t size) {
  Prng prng(seed);
  std::vector<std::byte> out(size);
  for (auto& byte : out) byte = static_cast<std::byte>(prng.next());
  return out;
}

void expect_exchange_works(const std::vector<std::unique_ptr<Group>>& groups, std::size_t bytes) {
  const int ranks = static_cast<int>(groups.size());
  in_parallel(ranks, [&](int r) {
    for (std::uint64_t round = 0; round < 3; ++round) {
      const auto seed = [&](int rank) { return round * 1000 + static_cast<std::uint64_t>(rank); };
      const auto mine = random_bytes(seed(r), bytes + static_cast<std::size_t>(r));
      const auto all = groups[static_cast<std::size_t>(r)]->all_gather(mine, 60s);
      ASSERT_TRUE(all.has_value()) << all.error().message;
      ASSERT_EQ(all->size(), groups.size());
      for (int other = 0; other < ranks; ++other)
        EXPECT_EQ((*all)[static_cast<std::size_t>(other)],
                  random_bytes(seed(other), bytes + static_cast<std::size_t>(other)));
    }
  });
}

TEST(Group, MeetsAtAnAddressAndExchanges) {
  for (const int ranks : {1, 2, 3, 8}) {
    const ReservedPort port;
    const auto groups = meet_in_threads(ranks, port.host_port());
    for (const auto& group : groups) ASSERT_NE(group, nullptr);
    expect_exchange_works(groups, 100);
  }
}

TEST(Group, MeetsThroughAStore) {
  MemoryStore store;
  std::vector<std::unique_ptr<Group>> groups(4);
  in_parallel(4, [&](int r) {
    auto group = Group::meet(options_for(r, 4), store);
    ASSERT_TRUE(group.has_value()) << group.error().message;
    groups[static_cast<std::size_t>(r)] = std::move(*group);
  });
  expect_exchange_works(groups, 10);
}

TEST(Group, MeetsAgainThroughAStoreThatStillHoldsOldKeys) {
  MemoryStore store;
  for (int generation = 0; generation < 3; ++generation)
    in_parallel(3, [&](int r) {
      // Rank 0 comes last, so that the others read what the previous rank 0 left behind.
      if (r == 0) std::this_thread::sleep_for(100ms);
      auto group = Group::meet(options_for(r, 3), store);
      ASSERT_TRUE(group.has_value()) << group.error().message;
      EXPECT_TRUE((*group)->all_gather(bytes_of("x"), 60s).has_value());
    });
}

TEST(Group, MeetsAgainAtTheSameAddress) {
  const ReservedPort port;
  for (int generation = 0; generation < 5; ++generation)
    in_parallel(3, [&](int r) {
      auto group = Group::meet_at(options_for(r, 3), port.host_port());
      ASSERT_TRUE(group.has_value()) << group.error().message;
    });
}

TEST(Group, AnotherGroupWaitsForItsOwnRankZero) {
  const ReservedPort port;
  in_parallel(4, [&](int i) {
    auto options = options_for(i % 2, 2);
    options.name = i < 2 ? "first" : "second";
    if (i == 2) std::this_thread::sleep_for(300ms);  // rank 0 of the second, when the first is over
    auto group = Group::meet_at(options, port.host_port());
    EXPECT_TRUE(group.has_value()) << options.name << ": " << group.error().message;
  });
}

TEST(Group, LargeContributionsPass) {
  const ReservedPort port;
  expect_exchange_works(meet_in_threads(3, port.host_port()), 3u << 20);
}

TEST(Group, TooLargeAContributionIsRefusedHere) {
  auto group = Group::meet_at(options_for(0, 1), "127.0.0.1:1");
  const std::vector<std::byte> mine(max_contribution_bytes + 1);
  EXPECT_EQ((*group)->all_gather(mine, 1s).error().code, Errc::invalid_argument);
}

TEST(Group, DescribesEveryRank) {
  const ReservedPort port;
  const auto groups = meet_in_threads(3, port.host_port());
  const auto me = own_identity();
  for (const auto& group : groups)
    for (int r = 0; r < 3; ++r)
      EXPECT_EQ(group->describe(Rank{r}), fmt::format("rank {} (pid {} on {})", r, me.pid, me.host));
  EXPECT_EQ(groups[0]->describe(Rank{7}), "rank 7");
}

TEST(Group, NamesTheRanksThatDoNotCome) {
  const ReservedPort port;
  in_parallel(4, [&](int r) {
    if (r == 2) return;
    const auto group = Group::meet_at(options_for(r, 4, 1s), port.host_port());
    ASSERT_FALSE(group.has_value());
    EXPECT_EQ(group.error().code, Errc::timed_out) << group.error().message;
    EXPECT_THAT(group.error().message, HasSubstr("rank 2 of 4 did not come")) << "rank " << r;
  });
}

TEST(Group, NamesTheRanksThatDoNotComeToAStore) {
  MemoryStore store;
  const auto group = Group::meet(options_for(0, 4, 200ms), store);
  ASSERT_FALSE(group.has_value());
  EXPECT_THAT(group.error().message, HasSubstr("ranks 1, 2, 3 of 4 did not come"));
}

TEST(Group, SaysThatRankZeroIsMissing) {
  const ReservedPort port;
  const auto group = Group::meet_at(options_for(1, 2, 300ms), port.host_port());
  ASSERT_FALSE(group.has_value());
  EXPECT_EQ(group.error().code, Errc::timed_out);
  EXPECT_THAT(group.error().message, AllOf(HasSubstr("no rank 0"), HasSubstr(port.host_port())));
}

TEST(Group, TellsARankThatComesTwice) {
  const ReservedPort port;
  std::atomic<int> refused{0};
  in_parallel(3, [&](int i) {
    const auto group = Group::meet_at(options_for(i == 2 ? 1 : i, 3, 2s), port.host_port());
    ASSERT_FALSE(group.has_value());
    if (group.error().message.find("here already") != std::string::npos) ++refused;
  });
  EXPECT_EQ(refused, 1);
}

TEST(Group, TellsRanksThatDisagreeOnTheSize) {
  const ReservedPort port;
  in_parallel(2, [&](int r) {
    const auto group = Group::meet_at(options_for(r, r == 0 ? 2 : 3, r == 0 ? 1s : 20s), port.host_port());
    ASSERT_FALSE(group.has_value());
    EXPECT_THAT(group.error().message,
                HasSubstr(r == 0 ? "rank 1 of 2 did not come" : "has 3 ranks, rank 0 says 2"));
  });
}

TEST(Group, RefusesNonsense) {
  EXPECT_EQ(Group::meet_at(options_for(2, 2), "127.0.0.1:5000").error().code, Errc::invalid_argument);
  EXPECT_EQ(Group::meet_at(options_for(0, 0), "127.0.0.1:5000").error().code, Errc::invalid_argument);
  for (const char* place : {"", "host", "host:", ":5000", "host:0", "host:65536", "host:5000x", "::1:5000"})
    EXPECT_EQ(Group::meet_at(options_for(0, 2), place).error().code, Errc::invalid_argument) << place;
}

TEST(Group, SaysWhenThePortIsTaken) {
  const auto taken = listen_on({IpAddress::v4(127, 0, 0, 1), 0});
  const auto group = Group::meet_at(options_for(0, 2, 1s), to_string(*local_endpoint(taken->get())));
  ASSERT_FALSE(group.has_value());
  EXPECT_EQ(group.error().code, Errc::in_use);
}

TEST(Group, SaysWhenTheMeetingPointIsElsewhere) {
  const auto group = Group::meet_at(options_for(0, 2, 1s), "192.0.2.1:29500");  // TEST-NET-1
  ASSERT_FALSE(group.has_value());
  EXPECT_THAT(group.error().message, HasSubstr("this host does not have that address"));
}

// In a network namespace of its own, where nothing is up. Status: 0 when all is as it should be.
int meet_where_loopback_is_down() {
  constexpr int not_permitted = 77;
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWNET) != 0) return not_permitted;
  for (int rank = 0; rank < 2; ++rank)
    for (const char* host : {"127.0.0.1", "[::1]", "localhost"}) {
      const auto group = Group::meet_at(options_for(rank, 2), fmt::format("{}:29500", host));
      if (group || group.error().code != Errc::not_found) return 1;
      if (group.error().message.find("loopback interface, which is down") == std::string::npos) return 2;
    }
  return 0;
}

TEST(Group, SaysThatTheLoopbackInterfaceIsDown) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(meet_where_loopback_is_down());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77)
    std::puts("does not run: a network namespace of its own takes root or user namespaces");
  else
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Group, GoodbyeIsNoFailureUntilTheRankIsNeeded) {
  const ReservedPort port;
  auto groups = meet_in_threads(3, port.host_port());
  groups[2].reset();
  EXPECT_FALSE(wait_for_failure(*groups[0], 200ms).has_value());
  const auto all = groups[0]->all_gather(bytes_of("x"), 60s);
  ASSERT_FALSE(all.has_value());
  EXPECT_EQ(all.error().code, Errc::peer_lost);
  EXPECT_THAT(all.error().message, AllOf(HasSubstr("rank 2 (pid "), HasSubstr("has left")));
}

TEST(Group, ABroadcastFailureReachesEverybodyAtOnce) {
  const ReservedPort port;
  auto groups = meet_in_threads(4, port.host_port());
  groups[1]->broadcast_failure(Error{Errc::mismatch, "rank 1 called all_reduce, rank 2 barrier\n\x1b[31m"});
  groups[1]->broadcast_failure(Error{Errc::internal, "a second one is not sent"});
  for (const int r : {0, 2, 3}) {
    pollfd readable{groups[static_cast<std::size_t>(r)]->wait_descriptor(), POLLIN, 0};
    EXPECT_EQ(::poll(&readable, 1, 10000), 1);
    const auto failure = wait_for_failure(*groups[static_cast<std::size_t>(r)], 10s);
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(failure->rank, Rank{1});
    EXPECT_EQ(failure->error.code, Errc::mismatch);
    EXPECT_EQ(failure->error.message, "rank 1 called all_reduce, rank 2 barrier  [31m");
  }
  EXPECT_FALSE(groups[1]->poll_failure().has_value());
}

TEST(Group, ALongFailureTextIsCut) {
  const ReservedPort port;
  auto groups = meet_in_threads(2, port.host_port());
  groups[0]->broadcast_failure(Error{Errc::io, std::string(100000, 'x')});
  const auto failure = wait_for_failure(*groups[1], 10s);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->error.message.size(), max_failure_text_bytes);
}

TEST(Group, ALateRankIsNamedAtTheTimeout) {
  const ReservedPort port;
  auto groups = meet_in_threads(3, port.host_port());
  const auto other =
      std::async(std::launch::async, [&] { return groups[1]->all_gather({}, 100ms).has_value(); });
  const auto all = groups[0]->all_gather({}, 100ms);
  ASSERT_FALSE(all.has_value());
  EXPECT_EQ(all.error().code, Errc::timed_out);
  EXPECT_THAT(all.error().message, HasSubstr("rank 2 (pid "));
}

TEST(Group, AFailureEndsAnExchangeUnderWay) {
  const ReservedPort port;
  auto groups = meet_in_threads(2, port.host_port());
  std::thread breaker([&] {
    std::this_thread::sleep_for(50ms);
    groups[1]->broadcast_failure(Error{Errc::aborted, "the user pressed a key"});
  });
  const auto all = groups[0]->all_gather({}, 60s);
  breaker.join();
  ASSERT_FALSE(all.has_value());
  EXPECT_EQ(all.error().message, "the user pressed a key");
}

}  // namespace
}  // namespace beeline::bootstrap
