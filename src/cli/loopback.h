// The second process of `beeline perf --loopback`: the same program, started anew as the
// server, with a socket pair in place of the TCP connection.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "perf/channel.h"

namespace beeline::cli {

// Is this descriptor the end of a socket pair that LoopbackServer gave to this process?
bool is_channel_to_client(int fd);

class LoopbackServer {
 public:
  // Runs this program with `words` and "--control-fd N".
  static Result<LoopbackServer> start(std::vector<std::string> words);
  LoopbackServer(LoopbackServer&& other) noexcept;
  LoopbackServer& operator=(LoopbackServer&&) = delete;
  ~LoopbackServer();  // ends it

  perf::Channel& channel() { return channel_; }
  // Waits a little for it to end by itself. Empty, or how it died ("was killed by signal 11").
  std::string end();

 private:
  LoopbackServer(perf::Channel channel, int pid) : channel_(std::move(channel)), pid_(pid) {}
  perf::Channel channel_;
  int pid_;
};

}  // namespace beeline::cli
