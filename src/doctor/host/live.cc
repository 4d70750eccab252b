#include "doctor/host/live.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/descriptor.h"
#include "doctor/host/command.h"
#include "doctor/host/facts.h"
#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

constexpr std::size_t most_bytes = 4U << 20U;

// A slot of sysfs that holds nothing answers EINVAL or ENODEV: that is absence, not refusal.
void explain(Reading& reading, int error) {
  const bool refused = error == EACCES || error == EPERM;
  reading.access = refused ? Access::unreadable : Access::absent;
  reading.why =
      refused ? fmt::format("{} (uid {})", std::strerror(error), ::geteuid()) : std::strerror(error);
}

void read_file(Reading& reading) {
  // O_NONBLOCK: a named pipe must not hold us.
  const Descriptor file(::open(reading.question.name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return explain(reading, errno);
  std::array<char, 65536> piece;
  for (;;) {
    const ssize_t count = ::read(file.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return explain(reading, errno);
    if (count == 0) break;
    reading.value.append(piece.data(), static_cast<std::size_t>(count));
    if (reading.value.size() > most_bytes) break;
  }
  reading.access = Access::found;
}

void read_directory(Reading& reading) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(reading.question.name.c_str()), ::closedir);
  if (directory == nullptr) return explain(reading, errno);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  for (const auto& name : names) reading.value += name + "\n";
  reading.access = Access::found;
}

void read_link(Reading& reading) {
  char target[PATH_MAX];
  if (::realpath(reading.question.name.c_str(), target) == nullptr) return explain(reading, errno);
  reading.value = target;
  reading.access = Access::found;
}

bool refused(const Printed& printed) {
  const std::string words = lower(printed.err + printed.out.substr(0, 2000));
  return contains(words, "not permitted") || contains(words, "permission denied") ||
         contains(words, "must be root") || contains(words, "are you root") ||
         contains(words, "be run as root");
}

void read_command(Reading& reading) {
  const auto words = split(reading.question.name, " ");
  const Printed printed = run_command(words, 10s, most_bytes);
  // Behind the first line there is mostly the usage.
  const auto said = lines_of(trim(printed.err.substr(0, 300)));
  const std::string complaint = said.empty() ? "" : said.front();
  if (!printed.installed) {
    reading.access = Access::unreadable;
    reading.why = fmt::format("the program {} is not installed here", words.empty() ? "" : words.front());
  } else if (!printed.in_time) {
    reading.access = Access::unreadable;
    reading.why = "it did not end within 10 s, or printed more than 4 MiB";
  } else if (printed.status != 0 && refused(printed)) {
    reading.access = Access::unreadable;
    reading.why =
        fmt::format("{} (uid {})", complaint.empty() ? "permission denied" : complaint, ::geteuid());
  } else if (printed.status != 0 && printed.out.empty()) {
    reading.why = fmt::format("exit status {}: {}", printed.status, complaint);
  } else {
    reading.access = Access::found;
    reading.value = printed.out;
  }
}

}  // namespace

Reading LiveHost::read(const Question& question) {
  Reading reading;
  reading.question = question;
  switch (question.kind) {
    case Kind::file:
      read_file(reading);
      break;
    case Kind::directory:
      read_directory(reading);
      break;
    case Kind::link:
      read_link(reading);
      break;
    case Kind::command:
      read_command(reading);
      break;
    case Kind::fact:
      if (const auto found = given_.find(question.name); found != given_.end()) {
        reading.access = Access::found;
        reading.value = found->second;
      } else {
        reading = system_fact(question.name);
      }
  }
  return reading;
}

}  // namespace beeline::doctor
