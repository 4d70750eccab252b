#include "support/pcap.h"

#include "base/check.h"
#include "targets.h"
#include "wire/headers.h"

namespace beeline::fuzz {

void fuzz_pcap(Bytes input) {
  const auto capture = test::parse_pcap(input);
  if (!capture) {
    BEELINE_CHECK(!capture.error().message.empty());
    return;
  }
  std::size_t bytes = 0;
  for (const test::RoceFrame& frame : capture->frames) {
    BEELINE_CHECK(frame.datagram.size() == frame.ip_udp.udp_payload_bytes);
    BEELINE_CHECK(frame.ip_udp.destination_port == wire::roce_v2_port);
    bytes += frame.datagram.size();
  }
  BEELINE_CHECK(bytes <= input.size());
}

}  // namespace beeline::fuzz
