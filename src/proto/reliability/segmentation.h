// How a message becomes packets (IBTA vol. 1, 9.7.3 and table 35).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/types.h"
#include "wire/opcode.h"

namespace beeline::proto {

// Packets, and so PSNs, of a message; a READ takes as many as its response
// (IBTA vol. 1, 9.7.3). An empty message takes one.
constexpr std::uint32_t packet_count(std::uint32_t length, std::uint32_t mtu) {
  return length == 0 ? 1 : length / mtu + (length % mtu != 0 ? 1 : 0);
}

// Payload bytes of packet `index` of the message.
constexpr std::uint32_t packet_bytes(std::uint32_t length, std::uint32_t mtu, std::uint32_t index) {
  return std::min(mtu, length - index * mtu);
}

constexpr wire::Position position_of(std::uint32_t index, std::uint32_t count) {
  if (count == 1) return wire::Position::only;
  if (index == 0) return wire::Position::first;
  return index + 1 == count ? wire::Position::last : wire::Position::middle;
}

namespace detail {
using enum wire::Opcode;
// Row: WrOpcode; column: Position. A READ is one request packet whatever its length, and so is an
// atomic. Operations that send nothing have no row.
inline constexpr std::array<std::array<wire::Opcode, 4>, 8> request_opcodes = {{
    {rc_send_first, rc_send_middle, rc_send_last, rc_send_only},
    {rc_send_first, rc_send_middle, rc_send_last_imm, rc_send_only_imm},
    {rc_write_first, rc_write_middle, rc_write_last, rc_write_only},
    {rc_write_first, rc_write_middle, rc_write_last_imm, rc_write_only_imm},
    {rc_read_request, rc_read_request, rc_read_request, rc_read_request},
    {rc_compare_swap, rc_compare_swap, rc_compare_swap, rc_compare_swap},
    {rc_fetch_add, rc_fetch_add, rc_fetch_add, rc_fetch_add},
    {rc_send_first, rc_send_middle, rc_send_last_inv, rc_send_only_inv},
}};
inline constexpr std::array<wire::Opcode, 4> response_opcodes = {
    rc_read_response_first, rc_read_response_middle, rc_read_response_last, rc_read_response_only};
}  // namespace detail

constexpr wire::Opcode request_opcode(WrOpcode opcode, wire::Position position) {
  return detail::request_opcodes[static_cast<std::size_t>(opcode)][static_cast<std::size_t>(position)];
}
constexpr wire::Opcode response_opcode(wire::Position position) {
  return detail::response_opcodes[static_cast<std::size_t>(position)];
}

}  // namespace beeline::proto
