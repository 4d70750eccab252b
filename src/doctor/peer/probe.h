// The examining half of the UDP tests.
#pragma once

#include "doctor/peer/measure.h"

namespace beeline::doctor::peer {

// All pairs at once; several tries, so that one lost packet is no finding.
void probe_reach(std::vector<Pair>& pairs, std::uint64_t secret);
MtuResult probe_mtu(const Pair& pair, std::uint64_t secret);
PortResult probe_ports(const Pair& pair, std::uint64_t secret);

}  // namespace beeline::doctor::peer
