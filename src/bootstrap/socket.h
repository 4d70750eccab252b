// TCP as the bootstrap needs it: owned descriptors, addresses, and connections whose
// every wait has a deadline. All descriptors are non-blocking and close-on-exec.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/descriptor.h"
#include "base/result.h"
#include "base/time.h"

namespace beeline::bootstrap {

// A moment on the monotonic clock after which a wait gives up.
class Deadline {
 public:
  explicit Deadline(Duration from_now);

  Duration left() const;
  bool passed() const { return left() <= Duration::zero(); }
  // For poll(2): the time left, at most `cap`, rounded up to whole milliseconds.
  int poll_ms(Duration cap = 1h) const;
  Deadline sooner(Duration from_now) const;

 private:
  TimePoint at_;
};

struct Endpoint {
  IpAddress address;
  std::uint16_t port = 0;

  friend auto operator<=>(const Endpoint&, const Endpoint&) = default;
};
std::string to_string(const Endpoint& endpoint);  // "10.0.0.1:29500", "[fe80::1]:29500"

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
// "node-a:29500", "10.0.0.1:29500", "[::1]:29500".
Result<HostPort> parse_host_port(std::string_view text);

// All addresses of a name or of an address in text.
Result<std::vector<IpAddress>> resolve(const std::string& host);

// Listens on exactly this address, never the wildcard; port 0 takes a free one.
Result<Descriptor> listen_on(const Endpoint& endpoint);
// The next connection, or an empty descriptor when there is none (or it failed already).
Descriptor accept_one(int listener);
Result<Descriptor> connect_to(const Endpoint& endpoint, const Deadline& deadline);
Result<Endpoint> local_endpoint(int fd);
Result<Endpoint> peer_endpoint(int fd);

// Polls one descriptor. True when ready (also for an error on it), false at the deadline.
Result<bool> wait_for(int fd, short events, const Deadline& deadline);

// A peer whose host vanished is noticed within 5 s, by unanswered keepalives or
// unacknowledged data. A process that is merely stopped is not gone: its kernel answers.
void watch_for_death(int fd);
// While more is sent than a stopped peer's window holds, only the caller's deadline rules:
// TCP_USER_TIMEOUT also counts the time that a window stays closed.
void tolerate_closed_window(int fd, bool tolerate);

}  // namespace beeline::bootstrap
