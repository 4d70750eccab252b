#include "cli/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/descriptor.h"

namespace beeline::cli {
namespace {

[[noreturn]] void become(std::vector<char*>& words, pid_t parent, int report) {
  // The parent may have died before it could be watched.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(1);
  ::execvp(words[0], words.data());
  const int error = errno;
  [[maybe_unused]] const auto written = ::write(report, &error, sizeof error);
  ::_exit(127);
}

// What the child reported instead of executing the program; 0 when it does execute it.
int error_of_start(int report) {
  int error = 0;
  ssize_t got = 0;
  do got = ::read(report, &error, sizeof error);
  while (got < 0 && errno == EINTR);
  return got == sizeof error ? error : 0;
}

}  // namespace

SignalRelay::SignalRelay() {
  ::sigfillset(&relayed_);
  // Faults of this process's own, and what stops and continues it with its terminal's job.
  for (const int own :
       {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT})
    ::sigdelset(&relayed_, own);
  ::sigprocmask(SIG_BLOCK, &relayed_, &before_);
  // Whoever ignores it learns of no end: the kernel takes children away unasked, without a signal (wait(2)).
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &usual, &end_of_child_before_);
}

void SignalRelay::restore() const {
  ::sigaction(SIGCHLD, &end_of_child_before_, nullptr);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

Result<int> SignalRelay::run(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "a pipe");
  const Descriptor reads(ends[0]);
  Descriptor writes(ends[1]);
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return fail_errno(errno, "fork");
  if (child == 0) {
    restore();
    become(arguments, self, writes.get());
  }
  writes.reset();
  const int error = error_of_start(reads.get());

  int status = 0;
  while (::waitpid(child, &status, WNOHANG) != child) {
    siginfo_t signal{};
    if (::sigwaitinfo(&relayed_, &signal) < 0 || signal.si_signo == SIGCHLD) continue;
    // What the terminal sends, it sends to the child as well.
    if (signal.si_code != SI_KERNEL) ::kill(child, signal.si_signo);
  }
  if (error == ENOENT)
    return fail(Errc::not_found, "{}: the interpreter that it names is not there", words[0]);
  if (error != 0) return fail_errno(error, words[0]);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace beeline::cli
