// One line per packet, for logs, traces and test failures.
#pragma once

#include <string>

#include "wire/packet.h"

namespace beeline::wire {

// "RC WRITE FIRST qp=0x000011 psn=100 va=0x… rkey=0x… len=3000 payload=1024 ackreq"
std::string to_string(const PacketView& packet);
std::string to_string(const Headers& headers, std::size_t payload_bytes);

}  // namespace beeline::wire
