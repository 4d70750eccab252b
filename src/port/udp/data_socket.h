// The UDP sockets: one that receives on an address's RoCE port, others that send.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/address.h"
#include "base/descriptor.h"
#include "base/result.h"
#include "port/port.h"

namespace beeline::port {

// Interface index of a link-local IPv6 address; 0 for other addresses.
Result<std::uint32_t> scope_of(const IpAddress& address);

// Bound to address:4791, shared with other processes of the same user; reports the
// ECN field, takes IPv6 datagrams without a checksum (RoCE v2 peers send such).
// Errors: in_use names who holds the port, not_found: the address is not on this host.
Result<Descriptor> open_data_socket(const IpAddress& address, std::uint32_t scope_id);

// Bound to address:port, never receives. Empty without an error: the port is taken.
//
// The ICRC covers IPv4's identification field, so we must know what the kernel will
// write: 0 with DF set, which it does for unconnected sockets that never fragment.
// IP_PMTUDISC_PROBE does that and also ignores forged ICMP "fragmentation needed".
Result<Descriptor> open_flow_socket(const IpAddress& address, std::uint16_t port, std::uint32_t scope_id);

// Once for the socket, so that no packet costs more for it.
Result<void> mark_what_leaves(const Descriptor& flow_socket, const IpAddress& address, IpMarks marks);
// From now on it tells the hop limit of what it receives; of ToS and traffic class it always does.
void show_hop_limits(const Descriptor& data_socket, bool v4);

// From now on the socket may give several datagrams of a flow in one piece, and say where it is to be cut.
void take_merged_datagrams(const Descriptor& data_socket);

// As large as the kernel lets it be.
void grow_receive_buffer(const Descriptor& socket);

// What getsockopt(SO_RCVBUF) says that a data socket gets here; the kernel charges
// buffers against it, not payload.
std::size_t granted_receive_buffer();

}  // namespace beeline::port
