// What the RDMA connection manager puts before the user's private data of REQ and SIDR_REQ: IP
// addresses and the source port (IBTA annex A11; struct cma_hdr of Linux).
#pragma once

#include <cstdint>
#include <optional>

#include "base/address.h"
#include "base/bytes.h"

namespace beeline::wire::cm {

inline constexpr std::size_t ip_header_bytes = 36;

struct IpHeader {
  IpAddress source, destination;  // of the same family
  std::uint16_t source_port = 0;
  friend bool operator==(const IpHeader&, const IpHeader&) = default;
};

// From the front of private data; nothing when it is no such header.
std::optional<IpHeader> parse_ip_header(Bytes private_data);
// To the front of `out`, at least ip_header_bytes long.
void emit(const IpHeader& header, MutableBytes out);

}  // namespace beeline::wire::cm
