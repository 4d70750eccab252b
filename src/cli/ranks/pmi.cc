// PMI-1's wire protocol: lines "cmd=NAME key=value …" on a descriptor, an answer for each
// (https://flux-framework.readthedocs.io/projects/flux-rfc/en/latest/spec_13.html).
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "cli/ranks/noticeboard.h"

namespace beeline::cli {
namespace {

using bootstrap::Deadline;
using Answer = std::map<std::string, std::string>;

constexpr std::size_t most_line_bytes = 4096;
constexpr const char* key_of_notice = "beeline-doctor";

Answer parse(const std::string& line) {
  Answer answer;
  for (std::size_t start = 0; start < line.size();) {
    const auto end = std::min(line.find(' ', start), line.size());
    const auto word = line.substr(start, end - start);
    if (const auto equals = word.find('='); equals != std::string::npos)
      answer[word.substr(0, equals)] = word.substr(equals + 1);
    start = end + 1;
  }
  return answer;
}

class Pmi final : public Noticeboard {
 public:
  explicit Pmi(int descriptor) : fd_(descriptor) {}

  Result<void> start(const Deadline& deadline) {
    BEELINE_TRY_VOID(ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline));
    BEELINE_TRY(auto name, ask("cmd=get_my_kvsname", "my_kvsname", deadline));
    store_ = name["kvsname"];
    if (store_.empty()) return fail(Errc::protocol, "the launcher's PMI names no store");
    return {};
  }

  Result<void> post(const std::string& word, const Deadline& deadline) override {
    const auto line = fmt::format("cmd=put kvsname={} key={} value={}", store_, key_of_notice, word);
    BEELINE_TRY_VOID(ask(line, "put_result", deadline));
    return meet(deadline);
  }

  // What was put before a barrier is there behind it: all ranks take part.
  Result<std::string> read(const Deadline& deadline) override {
    BEELINE_TRY_VOID(meet(deadline));
    const auto line = fmt::format("cmd=get kvsname={} key={}", store_, key_of_notice);
    BEELINE_TRY(auto answer, ask(line, "get_result", deadline));
    return answer["value"];
  }

  std::string host_of(int, const Deadline&) override { return ""; }

  void leave(const Deadline& deadline) override { (void)ask("cmd=finalize", "finalize_ack", deadline); }

 private:
  Result<void> meet(const Deadline& deadline) {
    BEELINE_TRY_VOID(ask("cmd=barrier_in", "barrier_out", deadline));
    return {};
  }

  Result<Answer> ask(const std::string& line, const std::string& due, const Deadline& deadline) {
    const auto bytes = line + "\n";
    if (::write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      return fail_errno(errno, "speaking to the launcher's PMI");
    BEELINE_TRY(const auto text, read_line(deadline));
    auto answer = parse(text);
    const auto code = answer.find("rc");
    if (answer["cmd"] != due || (code != answer.end() && code->second != "0"))
      return fail(Errc::protocol, "the launcher's PMI answers '{}' to '{}'", text.substr(0, 100),
                  line.substr(0, line.find(' ')));
    return answer;
  }

  Result<std::string> read_line(const Deadline& deadline) {
    std::string line;
    for (;;) {
      BEELINE_TRY(const bool ready, bootstrap::wait_for(fd_, POLLIN, deadline));
      if (!ready)
        return fail(Errc::timed_out, "the launcher's PMI did not answer in time (are all ranks there?)");
      char c = 0;
      const auto got = ::read(fd_, &c, 1);
      if (got == 0) return fail(Errc::peer_lost, "the launcher closed its PMI connection");
      if (got < 0 && errno != EINTR && errno != EAGAIN)
        return fail_errno(errno, "hearing the launcher's PMI");
      if (got < 0) continue;
      if (c == '\n') return line;
      line += c;
      if (line.size() > most_line_bytes) return fail(Errc::protocol, "the launcher's PMI says too much");
    }
  }

  const int fd_;  // the launcher's, which closes with the process
  std::string store_;
};

}  // namespace

Result<std::unique_ptr<Noticeboard>> open_pmi(int descriptor, const Deadline& deadline) {
  if (::fcntl(descriptor, F_GETFL) < 0)
    return fail(Errc::io, "PMI_FD={}: no open descriptor; was this started by the launcher itself?",
                descriptor);
  auto board = std::make_unique<Pmi>(descriptor);
  BEELINE_TRY_VOID(board->start(deadline));
  return board;
}

}  // namespace beeline::cli
