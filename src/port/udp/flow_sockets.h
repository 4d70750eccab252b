// The sending sockets of one address: a UDP source port per flow, so that ECMP
// spreads flows over paths, as hardware does it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/address.h"
#include "base/descriptor.h"
#include "base/result.h"
#include "port/port.h"

namespace beeline::port {

class FlowSockets {
 public:
  static constexpr std::size_t sockets_max = 64;  // of equal marks
  static constexpr std::size_t all_sockets_max = 256;
  static constexpr std::uint16_t first_port = 0xC000;
  static constexpr std::uint16_t port_mask = 0x3FFF;

  FlowSockets(const IpAddress& address, std::uint32_t scope_id);

  // The port of 0xC000 + (hash & 0x3FFF), or the next one that is free; once there are
  // sockets_max sockets of these marks, one of those. Equal hashes and marks always get the same.
  Result<std::uint16_t> port_for(std::uint32_t flow_hash, IpMarks marks = {});
  // -1 when port_for() never returned that port.
  int descriptor(std::uint16_t port) const;
  void close_all();

 private:
  struct Flow {
    std::uint16_t wanted = 0, port = 0;
    IpMarks marks;
    Descriptor socket;
  };
  Result<std::uint16_t> open_near(std::uint16_t wanted, IpMarks marks);

  IpAddress address_;
  std::uint32_t scope_id_;
  std::vector<Flow> flows_;
};

}  // namespace beeline::port
