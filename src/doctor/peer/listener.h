// `beeline doctor --listen`: waits for other doctors, one at a time.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "doctor/peer/channel.h"
#include "doctor/peer/rail.h"

namespace beeline::doctor::peer {

// What a listener knows of its host. Describing it anew for every client shows what changed.
struct Host {
  // Its cards as they are now, until the next call. Null, or no function: no RC ping.
  std::function<verbs::Provider*()> open_cards;
  std::function<HostFacts(verbs::Provider*)> describe;
};

using Say = std::function<void(const std::string& line)>;

// The whole conversation with one client; ends with its "bye" or with what went wrong.
// UDP is answered on `udp_port` where that is free.
beeline::Result<void> serve_client(Channel& channel, const Host& host, std::uint16_t udp_port);

class Listener {
 public:
  // On every address of this host; port 0 takes a free one.
  static beeline::Result<Listener> open(std::uint16_t port);
  std::uint16_t port() const { return port_; }
  // Until `stop` says so, looked at twice a second. A client that comes while another is served is
  // told so and sent away; each client, and each stranger, costs one line.
  void run(const Host& host, const Say& say, const std::atomic<bool>& stop);

 private:
  Listener(Descriptor socket, std::uint16_t port) : socket_(std::move(socket)), port_(port) {}
  Descriptor socket_;
  std::uint16_t port_;
};

}  // namespace beeline::doctor::peer
