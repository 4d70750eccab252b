// RoCE v2 packets (the payload of a UDP datagram to port 4791) as pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <tl/expected.hpp>

#include "base/bytes.h"
#include "wire/headers.h"

namespace beeline::wire {

// Why a datagram is no packet of ours. Each value has its own counter.
enum class ParseError : std::uint8_t {
  too_short,          // shorter than BTH + ICRC, or than its opcode's headers
  unknown_opcode,     // not in the table
  bad_version,        // transport header version other than 0
  bad_length,         // not a multiple of four, or pad count larger than what follows the headers
  unexpected_payload  // payload where the opcode has none
};
std::string_view name(ParseError error);

// A checked view: the headers by value, the payload where it lies (without pad and ICRC).
struct PacketView {
  const OpcodeInfo* info = nullptr;  // never null in a view that parse returned
  Headers headers;
  Bytes payload;
};

// Checks opcode, header length and pad count against the datagram's length before
// anything behind the headers is looked at. `datagram` includes the ICRC, which is
// *not* checked here (icrc.h). The view refers into `datagram`.
tl::expected<PacketView, ParseError> parse(Bytes datagram);

// Pad bytes that make a payload a multiple of four.
constexpr std::uint8_t pad_for(std::size_t payload_bytes) {
  return static_cast<std::uint8_t>((4 - payload_bytes % 4) % 4);
}

// Writes BTH and the opcode's extension headers to the front of `out` (at least
// max_header_bytes long); returns how many bytes. Reserved bits are written as zero.
std::size_t emit(const Headers& headers, MutableBytes out);

// True when a payload of this size is legal for the opcode under this path MTU.
bool payload_fits(const OpcodeInfo& row, std::size_t payload_bytes, std::size_t path_mtu);

}  // namespace beeline::wire
