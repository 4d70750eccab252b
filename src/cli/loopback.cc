#include "cli/loopback.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "base/clock.h"

extern char** environ;

namespace beeline::cli {
namespace {

// The number under which the child finds its end; file actions may use it freely.
constexpr int child_fd = 3;
constexpr Duration end_timeout = 10s;

class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

}  // namespace

bool is_channel_to_client(int fd) {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  return fd == child_fd && getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0 &&
         peer.ss_family == AF_UNIX;
}

Result<LoopbackServer> LoopbackServer::start(std::vector<std::string> words) {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno(errno, "making a socket pair");
  Descriptor mine(ends[0]);
  const Descriptor theirs(ends[1]);

  words.insert(words.begin(), "beeline");
  words.push_back("--control-fd");
  words.push_back(std::to_string(child_fd));
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  FileActions actions;
  posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(actions.get(), STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(actions.get(), theirs.get(), child_fd);
  pid_t pid = -1;
  if (const int error = posix_spawn(&pid, "/proc/self/exe", actions.get(), nullptr, argv.data(), environ);
      error != 0)
    return fail_errno(error, "starting a second process of this program");
  return LoopbackServer(perf::Channel(std::move(mine), "the server process"), pid);
}

LoopbackServer::LoopbackServer(LoopbackServer&& other) noexcept
    : channel_(std::move(other.channel_)), pid_(std::exchange(other.pid_, -1)) {}

LoopbackServer::~LoopbackServer() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string LoopbackServer::end() {
  const TimePoint deadline = monotonic_now() + end_timeout;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (monotonic_now() > deadline) return "did not end";
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  pid_ = -1;
  if (WIFSIGNALED(status)) return fmt::format("was killed by signal {}", WTERMSIG(status));
  return {};
}

}  // namespace beeline::cli
