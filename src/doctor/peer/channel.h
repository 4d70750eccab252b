// The connection on which two doctors agree: JSON objects, each behind its length (u32,
// network byte order). Nothing that arrives is trusted: a length is bounded, a text is
// JSON or the end of the conversation, and every wait has a deadline.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/result.h"
#include "base/time.h"

namespace beeline::doctor::peer {

inline constexpr std::size_t max_message_bytes = std::size_t{64} * 1024;
inline constexpr std::uint16_t default_port = 18791;

// The next readiness of `fd` for `events`; false when the deadline passed.
bool wait_for(int fd, short events, TimePoint deadline);

class Channel {
 public:
  // One socket, or (over ssh) a descriptor to read from and one to write to.
  Channel(Descriptor socket, std::string peer);
  Channel(Descriptor in, Descriptor out, std::string peer);

  // How errors call the other end.
  const std::string& peer() const { return peer_; }
  beeline::Result<void> send(const nlohmann::json& message, Duration timeout = 10s);
  // The next message that is not "alive", which only lengthens the wait up to `timeout` from then.
  // A "failure" becomes an error, so does anything that is no message.
  beeline::Result<nlohmann::json> receive(Duration timeout);
  // The same, of this type only.
  beeline::Result<nlohmann::json> receive(std::string_view type, Duration timeout);

 private:
  beeline::Result<std::string> read_exactly(std::size_t bytes, TimePoint deadline);
  beeline::Result<nlohmann::json> read_message(TimePoint deadline);

  Descriptor in_, out_;
  std::string peer_;
};

beeline::Result<Channel> connect_to(const std::string& host, std::uint16_t port, Duration timeout);

}  // namespace beeline::doctor::peer
