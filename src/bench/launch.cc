#include "bench/launch.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace beeline::bench {
namespace {

constexpr std::size_t max_line_bytes = 4096;

// One rank's process, and what it prints.
struct Child {
  int rank = 0;
  pid_t pid = -1;
  int output = -1;  // read end of its pipe
  std::string line;
  bool running = false;
};

std::string describe_status(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

// Between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(const char* program, char* const* argv, int output, bool keep_stdout, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it died before prctl
  if (!keep_stdout) ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execv(program, argv);
  ::_exit(127);
}

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options)
      : options_(options), deadline_(monotonic_now() + options.deadline) {}
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  ~Launcher() { end_all(); }

  Result<void> run();

 private:
  Result<void> start(int rank);
  void relay(int timeout_ms);
  bool read_output(Child& child);
  void print_lines(Child& child, bool also_unfinished);
  void reap();
  void end_all();
  bool any_running() const;

  const LaunchOptions& options_;
  const TimePoint deadline_;
  std::vector<Child> children_;
  std::optional<std::string> first_failure_;
  TimePoint give_up_at_{};
};

Result<void> Launcher::start(int rank) {
  std::vector<std::string> words = options_.arguments(rank);
  words.insert(words.begin(), options_.program);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return fail_errno(errno, "cannot create a pipe");
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(options_.program.c_str(), argv.data(), pipe_ends[1], rank == 0, parent);
  const int cause = errno;
  ::close(pipe_ends[1]);
  ::fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK);
  children_.push_back({rank, pid, pipe_ends[0], {}, pid > 0});
  if (pid < 0) return fail_errno(cause, fmt::format("cannot start rank {}", rank));
  return {};
}

// False at the end of the output.
bool Launcher::read_output(Child& child) {
  char buffer[4096];
  for (;;) {
    const auto got = ::read(child.output, buffer, sizeof buffer);
    if (got > 0) {
      child.line.append(buffer, static_cast<std::size_t>(got));
      print_lines(child, false);
    } else if (got == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
}

void Launcher::print_lines(Child& child, bool also_unfinished) {
  for (;;) {
    std::size_t end = child.line.find('\n');
    const bool too_long = end == std::string::npos && child.line.size() >= max_line_bytes;
    if (end == std::string::npos && !too_long && !(also_unfinished && !child.line.empty())) return;
    const std::string line = child.line.substr(0, std::min(end, max_line_bytes));
    std::fprintf(stderr, "[rank %d] %s\n", child.rank, line.c_str());
    child.line.erase(0, end == std::string::npos ? line.size() : end + 1);
  }
}

void Launcher::relay(int timeout_ms) {
  std::vector<pollfd> entries;
  std::vector<Child*> who;
  for (Child& child : children_)
    if (child.output >= 0) {
      entries.push_back({child.output, POLLIN, 0});
      who.push_back(&child);
    }
  (void)::poll(entries.data(), entries.size(), timeout_ms);
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (entries[i].revents != 0 && !read_output(*who[i])) {
      print_lines(*who[i], true);
      ::close(std::exchange(who[i]->output, -1));
    }
}

void Launcher::reap() {
  for (Child& child : children_) {
    int status = 0;
    if (!child.running || ::waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
    child.running = false;
    if (status == 0 || first_failure_) continue;
    first_failure_ = fmt::format("rank {} (pid {}) {}", child.rank, child.pid, describe_status(status));
    give_up_at_ = monotonic_now() + options_.grace;
  }
}

bool Launcher::any_running() const {
  return std::any_of(children_.begin(), children_.end(), [](const Child& child) { return child.running; });
}

void Launcher::end_all() {
  // All at once, before any is waited for: none is to see another one die.
  for (const Child& child : children_)
    if (child.running) ::kill(child.pid, SIGKILL);
  for (Child& child : children_) {
    if (child.running) {
      ::waitpid(child.pid, nullptr, 0);
      child.running = false;
    }
  }
  relay(0);  // their last words
  for (Child& child : children_)
    if (child.output >= 0) {
      print_lines(child, true);
      ::close(std::exchange(child.output, -1));
    }
}

Result<void> Launcher::run() {
  for (int rank = 0; rank < options_.ranks; ++rank) BEELINE_TRY_VOID(start(rank));
  while (any_running()) {
    relay(20);
    reap();
    const auto now = monotonic_now();
    if (first_failure_ && now >= give_up_at_) break;
    if (now < deadline_) continue;
    return fail(Errc::timed_out, "the run did not end within {} s; all its processes are stopped",
                std::chrono::duration<double>(options_.deadline).count());
  }
  end_all();
  if (first_failure_) return fail(Errc::peer_lost, "{}; all ranks are stopped", *first_failure_);
  return {};
}

}  // namespace

Result<void> launch(const LaunchOptions& options) { return Launcher(options).run(); }

Result<ReservedPort> ReservedPort::take() {
  ReservedPort reserved(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), 0);
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  if (reserved.fd_ < 0 || ::setsockopt(reserved.fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(reserved.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::getsockname(reserved.fd_, reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
    return fail_errno(errno, "cannot reserve a TCP port on 127.0.0.1");
  reserved.port_ = ntohs(address.sin_port);
  return reserved;
}

ReservedPort::ReservedPort(ReservedPort&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), port_(other.port_) {}

ReservedPort::~ReservedPort() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace beeline::bench
