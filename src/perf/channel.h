// The TCP connection (or, between the two processes of --loopback, the socket pair) on
// which the two ends agree. Every wait has a deadline.
#pragma once

#include <optional>
#include <string>

#include "base/descriptor.h"
#include "base/result.h"
#include "base/time.h"
#include "perf/message.h"

namespace beeline::perf {

class Channel {
 public:
  // `peer` is how errors call the other end.
  Channel(Descriptor socket, std::string peer);

  const std::string& peer() const { return peer_; }
  Result<void> send(const Message& message);
  // The next message that is no heartbeat. A failure message becomes an error, so does
  // another type than `expected`.
  Result<Message> receive(MessageType expected, Duration timeout);
  // The same where several types may come.
  Result<Message> receive_any(Duration timeout);
  // Looks for a message that is there already: nothing, or one (heartbeats are eaten).
  Result<std::optional<Message>> poll();
  // Sends a heartbeat when the last one is a second old.
  Result<void> keep_alive();
  // Tells the peer why this end gives up; best effort.
  void send_failure(const Error& error);

 private:
  Result<std::optional<Message>> take();
  Result<void> fill(TimePoint deadline);

  Descriptor socket_;
  std::string peer_;
  std::vector<std::byte> received_;
  TimePoint last_alive_{};
};

class Listener {
 public:
  // On every address of this host.
  static Result<Listener> open(std::uint16_t port);
  // Waits for as long as it takes.
  Result<Channel> accept();
  std::uint16_t port() const { return port_; }

 private:
  Listener(Descriptor socket, std::uint16_t port) : socket_(std::move(socket)), port_(port) {}
  Descriptor socket_;
  std::uint16_t port_;
};

Result<Channel> connect_to(const std::string& host, std::uint16_t port, Duration timeout);

}  // namespace beeline::perf
