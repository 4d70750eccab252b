// Receiving with the IP header: for a process that may open raw sockets (CAP_NET_RAW).
//
// A UDP socket shows no IP identification, which the ICRC covers. A raw IPv4 socket gets a
// copy of every datagram that has passed the host's firewall and was reassembled, whichever UDP
// socket gets the datagram itself. A filter lets only RoCE packets for our own slot pass, so
// that steering (steering.h) does not matter for them, and nobody loses anything by it. The
// UDP socket stays: it holds the port, so that no ICMP answers for us, takes probes and what
// others must get by hand-over, and drops what the raw socket has.
//
// Until the raw socket is bound to its address it takes nothing. The two filters are complements: each
// datagram is taken exactly once. Datagrams to queue pair 1, which have no slot, stay with the UDP sockets:
// every raw socket would have a copy, and one process must answer.
#pragma once

#include <optional>

#include "base/bytes.h"
#include "base/descriptor.h"
#include "base/result.h"
#include "port/port.h"

namespace beeline::port {

inline constexpr std::size_t ip_udp_bytes_max = 60 + 8;  // IPv4 with options, UDP

// Whether this process may open raw sockets.
bool may_see_ip_headers();

// Takes RoCE packets for `own` that come to `address` (IPv4).
Result<Descriptor> open_raw_socket(const IpAddress& address, Slot own);
// Has a UDP socket drop exactly what the raw socket takes.
Result<void> drop_what_the_raw_socket_takes(int udp_socket, Slot own);

// What a raw socket received: IP header, UDP header, payload. Nothing when the lengths
// contradict each other or there is what no RoCE packet has: IP options, fragments, bytes
// behind the UDP datagram. (All of it is covered by the ICRC, so nothing valid is lost.)
std::optional<InPacket> parse_ip_datagram(MutableBytes bytes);

}  // namespace beeline::port
