// Starts the ranks of a run as processes of this host and watches over them: the first
// death or error ends all of them, none outlives us, and none runs past the deadline.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace beeline::bench {

struct LaunchOptions {
  int ranks = 1;
  std::string program;  // a path
  // Arguments (without the program's name) of one rank.
  std::function<std::vector<std::string>(int rank)> arguments;
  Duration deadline = 10min;
  // After the first failure the others have so long to say what they see.
  Duration grace = 6s;
};

// Rank 0's standard output is ours; everything else that ranks print appears on our standard error,
// line by line after "[rank N] ". The error says which rank failed first, and how.
Result<void> launch(const LaunchOptions& options);

// A TCP port of 127.0.0.1 that is free and stays so while this lives: bound with SO_REUSEADDR but
// not listening, it lets one listener with SO_REUSEADDR in and keeps others out.
class ReservedPort {
 public:
  static Result<ReservedPort> take();
  ReservedPort(ReservedPort&& other) noexcept;
  ReservedPort& operator=(ReservedPort&&) = delete;
  ~ReservedPort();
  std::uint16_t port() const { return port_; }

 private:
  ReservedPort(int fd, std::uint16_t port) : fd_(fd), port_(port) {}
  int fd_;
  std::uint16_t port_;
};

}  // namespace beeline::bench
