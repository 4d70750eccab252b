#include "bench/launch.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

namespace beeline::bench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

LaunchOptions shell(int ranks, const std::function<std::string(int)>& script) {
  LaunchOptions options;
  options.ranks = ranks;
  options.program = "/bin/sh";
  options.arguments = [script](int rank) { return std::vector<std::string>{"-c", script(rank)}; };
  options.grace = 300ms;
  return options;
}

// A file that lives as long as the test.
class PidFile {
 public:
  PidFile() { EXPECT_GE(::close(::mkstemp(path_)), 0); }
  ~PidFile() { ::unlink(path_); }
  std::string path() const { return path_; }
  pid_t read() const {
    pid_t pid = 0;
    std::ifstream(path_) >> pid;
    return pid;
  }

 private:
  char path_[32] = "/tmp/beeline-test-XXXXXX";
};

// Neither gone nor a zombie that its new parent has not yet reaped.
bool alive(pid_t pid) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string number, name, state;
  stat >> number >> name >> state;
  return !state.empty() && state != "Z";
}

TEST(Launch, SucceedsWhenAllRanksDo) {
  EXPECT_TRUE(launch(shell(3, [](int) { return "exit 0"; })).has_value());
}

TEST(Launch, RelaysWhatRanksSay) {
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(launch(shell(3, [](int rank) {
                return rank == 1 ? "echo out; printf 'err\\nunfinished' >&2" : "exit 0";
              })).has_value());
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, AllOf(HasSubstr("[rank 1] out\n"), HasSubstr("[rank 1] err\n"),
                          HasSubstr("[rank 1] unfinished\n")));
}

TEST(Launch, AVeryLongLineIsCutNotKept) {
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(launch(shell(1, [](int) { return "head -c 100000 /dev/zero | tr '\\0' x >&2"; })).has_value());
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), 'x'), 100000);
  EXPECT_GT(std::count(said.begin(), said.end(), '\n'), 20);
}

TEST(Launch, OneErrorEndsAllAndIsNamed) {
  PidFile file;
  const auto outcome = launch(shell(3, [&](int rank) {
    return rank == 1   ? "exit 7"
           : rank == 2 ? "echo $$ > " + file.path() + "; exec sleep 600"
                       : "exec sleep 600";
  }));
  ASSERT_FALSE(outcome.has_value());
  EXPECT_THAT(outcome.error().message, AllOf(HasSubstr("rank 1 (pid "), HasSubstr("ended with status 7")));
  EXPECT_FALSE(file.read() != 0 && alive(file.read())) << "an orphan stays behind";
}

TEST(Launch, ADeathEndsAllAndIsNamed) {
  const auto outcome = launch(shell(2, [](int rank) { return rank == 0 ? "kill -9 $$" : "exec sleep 600"; }));
  ASSERT_FALSE(outcome.has_value());
  EXPECT_THAT(outcome.error().message, AllOf(HasSubstr("rank 0 (pid "), HasSubstr("killed by signal 9")));
}

TEST(Launch, OthersMaySayWhatTheySee) {
  ::testing::internal::CaptureStderr();
  auto options =
      shell(2, [](int rank) { return rank == 0 ? "exit 1" : "sleep 0.2; echo rank 0 is gone >&2; exit 1"; });
  options.grace = 30s;
  const auto outcome = launch(options);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("[rank 1] rank 0 is gone"));
  EXPECT_THAT(outcome.error().message, HasSubstr("rank 0 (pid "));
}

TEST(Launch, TheDeadlineEndsAll) {
  auto options = shell(2, [](int) { return "exec sleep 600"; });
  options.deadline = 200ms;
  const auto outcome = launch(options);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, Errc::timed_out);
}

TEST(Launch, AProgramThatIsNotThereIsAnError) {
  LaunchOptions options;
  options.program = "/nonexistent/program";
  options.arguments = [](int) { return std::vector<std::string>{}; };
  EXPECT_THAT(launch(options).error().message, HasSubstr("ended with status 127"));
}

TEST(Launch, RanksDieWithALauncherThatIsKilled) {
  PidFile file;
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    (void)launch(shell(1, [&](int) { return "echo $$ > " + file.path() + "; exec sleep 600"; }));
    ::_exit(0);
  }
  const auto give_up = std::chrono::steady_clock::now() + 30s;
  while (file.read() == 0 && std::chrono::steady_clock::now() < give_up) std::this_thread::sleep_for(5ms);
  const pid_t rank = file.read();
  ASSERT_NE(rank, 0);
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  while (alive(rank) && std::chrono::steady_clock::now() < give_up) std::this_thread::sleep_for(5ms);
  EXPECT_FALSE(alive(rank));
}

TEST(ReservedPort, AreAllDifferent) {
  std::vector<ReservedPort> ports;
  std::vector<int> numbers;
  for (int i = 0; i < 20; ++i) {
    auto port = ReservedPort::take();
    ASSERT_TRUE(port.has_value()) << port.error().message;
    numbers.push_back(port->port());
    ports.push_back(std::move(*port));
  }
  std::sort(numbers.begin(), numbers.end());
  EXPECT_EQ(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

}  // namespace
}  // namespace beeline::bench
