// One connection out of a captured file, and the messages in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/pcap.h"
#include "wire/packet.h"

namespace beeline::test {

enum class Side : std::uint8_t { client, server };
constexpr Side other(Side side) { return side == Side::client ? Side::server : Side::client; }

struct Event {
  Side from{};
  TimePoint at;
  wire::IpUdp ip_udp;
  std::vector<std::byte> datagram;
  wire::PacketView view;  // into datagram

  bool is_request() const { return view.info->is_request(); }
};

// In the order of the capture. Views point into it: moved, never copied.
struct Session {
  Session() = default;
  Session(Session&&) = default;
  Session& operator=(Session&&) = default;

  std::vector<Event> events;
};

// A request message as one side sent it, put together from its packets.
struct Message {
  std::size_t first_event = 0;
  const wire::OpcodeInfo* info = nullptr;  // of its first packet
  wire::Headers headers;                   // of its first packet
  std::vector<std::byte> payload;          // sent; or, for a READ or an atomic, what came back
};

// The packets of queue pair `qpn`. rxe numbered the queue pairs of client and server alike
// in every captured session, so that one number names both ends; addresses tell them apart.
Session load_session(const std::string& file, Qpn qpn);

// Takes a datagram as its own: for tests that change one.
void reparse(Event& event);

// What came back is data.
constexpr bool brings_data(const Message& message) {
  return message.info->kind == wire::Kind::read_request || message.info->kind == wire::Kind::atomic_request;
}

// Indices of the events of `from` that are requests and no repetition of an earlier one.
std::vector<std::size_t> new_requests(const Session& session, Side from);
// Those, as messages.
std::vector<Message> messages(const Session& session, Side from);

}  // namespace beeline::test
