// Reads the RoCE v2 datagrams of a capture file: classic pcap, Ethernet link type.
// A capture is a stranger's bytes too: every length is checked before it is used.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/time.h"
#include "wire/icrc.h"

namespace beeline::test {

struct RoceFrame {
  TimePoint captured;               // since the first frame of the file
  wire::IpUdp ip_udp;               // with the identification and DF that were on the wire
  std::vector<std::byte> datagram;  // BTH … ICRC
};

struct Capture {
  std::vector<RoceFrame> frames;  // to UDP port 4791, in the file's order
  std::size_t truncated = 0;      // longer on the wire than in the file
  std::size_t malformed = 0;      // lengths that contradict each other
  std::size_t other = 0;          // anything else: ARP, TCP, IP fragments, IP options, …
};

// An error when this is no such file, or when it ends within a record.
Result<Capture> parse_pcap(Bytes file);
Result<Capture> read_pcap(const std::string& path);

}  // namespace beeline::test
