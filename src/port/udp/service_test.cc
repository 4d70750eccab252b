// Who listens for a service on this host: one at most, until it lets go or dies.
#include "port/udp/service.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <optional>

#include "base/random.h"
#include "port/udp/test_support.h"

namespace beeline::port::test {
namespace {

// One that no other program on this machine uses.
std::uint64_t own_service() { return secure_random(); }

TEST(ServiceReservation, IsExclusiveAndNamesThePort) {
  const std::uint64_t service = own_service();
  const auto first = ServiceReservation::reserve(service);
  ASSERT_TRUE(first) << first.error().message;
  const auto second = ServiceReservation::reserve(service);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::in_use);
  EXPECT_THAT(second.error().message, ::testing::HasSubstr(fmt::format("(port {})", service & 0xFFFF)));
  EXPECT_TRUE(ServiceReservation::reserve(service + 1)) << "another service is another matter";
}

TEST(ServiceReservation, IsFreeAgainWhenLetGo) {
  const std::uint64_t service = own_service();
  for (int i = 0; i < 3; ++i) {
    auto reserved = ServiceReservation::reserve(service);
    ASSERT_TRUE(reserved) << reserved.error().message;
    ASSERT_TRUE(reserved->serve());
    EXPECT_TRUE(service_is_served(service));
    reserved = fail(Errc::in_use, "let go");
    EXPECT_FALSE(service_is_served(service));
  }
}

TEST(ServiceReservation, IsServedFromServeOn) {
  const std::uint64_t service = own_service();
  EXPECT_FALSE(service_is_served(service));
  auto reserved = ServiceReservation::reserve(service);
  ASSERT_TRUE(reserved) << reserved.error().message;
  EXPECT_FALSE(service_is_served(service)) << "bound, but nobody listens yet";
  ASSERT_TRUE(reserved->serve());
  // Nobody accepts, and the queue is short: the answer stays the same however often it is asked for.
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(service_is_served(service)) << i;
  EXPECT_FALSE(service_is_served(service ^ 1));
}

TEST(ServiceReservation, MovesWithItsOwner) {
  const std::uint64_t service = own_service();
  std::optional<ServiceReservation> kept;
  {
    auto reserved = ServiceReservation::reserve(service);
    ASSERT_TRUE(reserved) << reserved.error().message;
    kept = std::move(*reserved);
  }
  EXPECT_FALSE(ServiceReservation::reserve(service));
  ASSERT_TRUE(kept->serve());
  EXPECT_TRUE(service_is_served(service));
}

TEST(ServiceReservation, ThePortOfEveryProcessSeesIt) {
  const std::uint64_t service = own_service();
  auto port = make_udp_port(IcrcCheck::plain);
  ASSERT_TRUE(port);
  EXPECT_FALSE((*port)->is_served(service));
  auto reserved = ServiceReservation::reserve(service);
  ASSERT_TRUE(reserved) << reserved.error().message;
  EXPECT_FALSE((*port)->is_served(service));
  ASSERT_TRUE(reserved->serve());
  EXPECT_TRUE((*port)->is_served(service));
}

// Another process that has a service, until it is killed.
class Holder {
 public:
  explicit Holder(std::uint64_t service, bool serves) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const Descriptor ours(ends[0]);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      auto reserved = ServiceReservation::reserve(service);
      const bool ready = reserved && (!serves || reserved->serve());
      ::send(ends[1], &ready, sizeof ready, MSG_NOSIGNAL);
      for (;;) ::pause();
    }
    ::close(ends[1]);
    bool ready = false;
    EXPECT_EQ(::recv(ours.get(), &ready, sizeof ready, 0), static_cast<ssize_t>(sizeof ready));
    EXPECT_TRUE(ready);
  }
  ~Holder() { kill(); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  void stop() const { ::kill(pid_, SIGSTOP); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

TEST(ServiceReservation, OfAnotherProcessEndsWithItHoweverItDies) {
  const std::uint64_t service = own_service();
  for (const bool serves : {false, true}) {
    Holder holder(service, serves);
    const auto refused = ServiceReservation::reserve(service);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::in_use);
    EXPECT_EQ(service_is_served(service), serves);
    holder.kill();
    EXPECT_FALSE(service_is_served(service));
    EXPECT_TRUE(ServiceReservation::reserve(service)) << "kill -9 frees it";
  }
}

// Whoever asks must not wait for the process that serves.
TEST(ServiceReservation, OfAStoppedProcessIsAnsweredByTheKernel) {
  const std::uint64_t service = own_service();
  const Holder holder(service, true);
  holder.stop();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(service_is_served(service)) << i;
}

// It is a name of the host, not of a user: a foreign user's reservation counts, too.
TEST(ServiceReservation, HoldsAgainstOtherUsers) {
  if (!is_root()) return (void)std::puts("needs root to be another user: not run");
  const std::uint64_t service = own_service();
  auto reserved = ServiceReservation::reserve(service);
  ASSERT_TRUE(reserved) << reserved.error().message;
  ASSERT_TRUE(reserved->serve());
  EXPECT_EQ(run_as(nobody,
                   [&] {
                     if (!service_is_served(service)) return 1;
                     const auto theirs = ServiceReservation::reserve(service);
                     return !theirs && theirs.error().code == Errc::in_use ? 0 : 2;
                   }),
            0);
}

}  // namespace
}  // namespace beeline::port::test
