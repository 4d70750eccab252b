// Queue pair 1 of every device: 256-byte management datagrams, for the connection manager.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/bytes.h"
#include "base/time.h"
#include "nic/card.h"
#include "wire/packet.h"

namespace beeline::nic {

inline constexpr std::size_t mad_bytes = 256;  // IBTA vol. 1, 13.4.2

struct OutMad {
  IpAddress local;  // an address of one of the card's devices
  IpAddress remote;
  std::array<std::byte, mad_bytes> bytes{};
};

// Who speaks over queue pair 1. Called with the engine held, from whichever thread drives it: must not
// block nor call back into the card. `mad` is exactly mad_bytes long and passed the ICRC; nothing else in it
// has been looked at.
class ManagementAgent {
 public:
  virtual ~ManagementAgent() = default;
  // What to do with a datagram that this process got. Every process on UDP 4791 can get any of them.
  enum class Fate : unsigned char { taken, for_slot, for_everybody, dropped };
  struct Verdict {
    Fate fate = Fate::dropped;
    unsigned char slot = 0;  // of for_slot
  };
  // `handed_over`: another process passed it on: it may not be passed on again.
  virtual Verdict handle_mad(TimePoint now, const IpAddress& local, const IpAddress& remote, Bytes mad,
                             bool handed_over) = 0;
  virtual void handle_timeout(TimePoint now) = 0;
  virtual TimePoint next_timeout() const = 0;
  virtual std::size_t poll_transmit(TimePoint now, std::span<OutMad> out) = 0;
};

// The engine's side of queue pair 1: what is no datagram for it is dropped, the agent is asked about the
// rest, and its answers are framed. Without an agent, datagrams still find the process that they are for.
// The caller holds the engine.
class Management {
 public:
  Management(port::Port& port, CardCounters& counters) : port_(port), counters_(counters) {}

  void set_agent(ManagementAgent* agent);
  void take(const port::InPacket& datagram, const wire::PacketView& packet, TimePoint now);
  TimePoint deadline() const { return deadline_; }
  // The agent's timers, and what it has to send.
  void pump(TimePoint now);

 private:
  // A request for a service that nobody serves: who asks may just be quicker than who is about to listen
  // (perftest connects, closes its listener, and listens again). So it waits a moment before it is refused.
  struct Waiting {
    TimePoint until;
    port::InPacket datagram;  // its bytes are those below
    std::vector<std::byte> bytes;
  };
  static constexpr std::size_t waiting_max = 256;
  static constexpr Duration wait_for_listener = 2s;
  static constexpr Duration look_again = 10ms;

  Bytes mad_of(const port::InPacket& datagram) const;
  ManagementAgent::Verdict ask(TimePoint now, const port::InPacket& datagram);
  void pass_to_slot(const port::InPacket& datagram, std::uint8_t slot);
  void place_request(TimePoint now, const port::InPacket& datagram);
  void look_after_waiting(TimePoint now);
  void refuse(const port::InPacket& datagram);
  bool send(const OutMad& mad);

  port::Port& port_;
  CardCounters& counters_;
  ManagementAgent* agent_ = nullptr;
  TimePoint deadline_ = TimePoint::never();
  std::optional<OutMad> unsent_;  // there was no room for it
  std::uint32_t psn_ = 0;
  std::vector<Waiting> waiting_;
};

}  // namespace beeline::nic
