// The port over plain UDP sockets, and what a host's interfaces are.
#pragma once

#include "port/port.h"

namespace beeline::port {

// Interfaces with at least one address; those that are up and no loopback come first,
// then by index. From getifaddrs(3) and /sys/class/net.
Result<std::vector<Interface>> list_interfaces();

// Takes a free slot (abstract datagram socket "@beeline.4791.<slot>").
Result<std::unique_ptr<Port>> make_udp_port();

}  // namespace beeline::port
