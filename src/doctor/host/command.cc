#include "doctor/host/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "base/descriptor.h"

namespace beeline::doctor {
namespace {

using Clock = std::chrono::steady_clock;

std::string find_program(const std::string& name) {
  constexpr std::array directories = {"/usr/sbin/",
                                      "/usr/bin/",
                                      "/sbin/",
                                      "/bin/",
                                      "/usr/local/sbin/",
                                      "/usr/local/bin/",
                                      "/opt/mellanox/iproute2/sbin/"};
  for (const char* directory : directories) {
    std::string path = directory + name;
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

struct Pipe {
  Descriptor read, write;
};

bool open_pipe(Pipe& pipe) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  pipe.read = Descriptor(ends[0]);
  pipe.write = Descriptor(ends[1]);
  // The child writes to a blocking end, as programs expect.
  return ::fcntl(ends[1], F_SETFL, 0) == 0;
}

pid_t spawn(const std::string& path, const std::vector<std::string>& words, int out, int err) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, 1);
  posix_spawn_file_actions_adddup2(&actions, err, 2);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // so that its children can be killed too
  posix_spawnattr_setpgroup(&attributes, 0);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::string locale = "LC_ALL=C", search = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
  std::array<char*, 3> environment = {locale.data(), search.data(), nullptr};
  pid_t pid = -1;
  if (::posix_spawn(&pid, path.c_str(), &actions, &attributes, argv.data(), environment.data()) != 0)
    pid = -1;
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return pid;
}

// False when the other end is closed.
bool drain(int descriptor, std::string& into) {
  std::array<char, 16384> piece;
  for (;;) {
    const ssize_t count = ::read(descriptor, piece.data(), piece.size());
    if (count > 0) into.append(piece.data(), static_cast<std::size_t>(count));
    if (count == 0) return false;
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    if (into.size() > (64U << 20U)) return true;  // the caller looks at the size
  }
}

// False at the deadline, or when too much came.
bool collect(Printed& printed, int out, int err, Clock::time_point deadline, std::size_t most_bytes) {
  bool out_open = true, err_open = true;
  while (out_open || err_open) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    std::array<pollfd, 2> waiting = {pollfd{out_open ? out : -1, POLLIN, 0},
                                     pollfd{err_open ? err : -1, POLLIN, 0}};
    ::poll(waiting.data(), waiting.size(), static_cast<int>(left));
    if (waiting[0].revents != 0) out_open = drain(out, printed.out);
    if (waiting[1].revents != 0) err_open = drain(err, printed.err);
    if (printed.out.size() > most_bytes || printed.err.size() > most_bytes) {
      printed.out.resize(std::min(printed.out.size(), most_bytes));
      printed.err.resize(std::min(printed.err.size(), most_bytes));
      return false;
    }
  }
  return true;
}

// Reaps the child; kills its process group first unless it ends by itself before the deadline.
int reap(pid_t pid, bool ended, Clock::time_point deadline, bool& in_time) {
  int status = 0;
  while (ended && ::waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() >= deadline) ended = false;
    ::poll(nullptr, 0, 1);
  }
  if (!ended) {
    in_time = false;
    ::kill(-pid, SIGKILL);
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Printed run_command(const std::vector<std::string>& words, Duration limit, std::size_t most_bytes) {
  Printed printed;
  const std::string path = words.empty() ? std::string() : find_program(words.front());
  Pipe out, err;
  if (path.empty() || !open_pipe(out) || !open_pipe(err)) {
    printed.installed = false;
    return printed;
  }
  const auto deadline = Clock::now() + std::chrono::nanoseconds(limit);
  const pid_t pid = spawn(path, words, out.write.get(), err.write.get());
  if (pid < 0) {
    printed.installed = false;
    return printed;
  }
  out.write = Descriptor();
  err.write = Descriptor();
  const bool ended = collect(printed, out.read.get(), err.read.get(), deadline, most_bytes);
  printed.status = reap(pid, ended, deadline, printed.in_time);
  return printed;
}

}  // namespace beeline::doctor
