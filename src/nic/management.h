// Queue pair 1 of every device: 256-byte management datagrams, for the connection manager.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "base/address.h"
#include "base/bytes.h"
#include "base/time.h"

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

}  // namespace beeline::nic
