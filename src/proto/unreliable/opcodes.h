// The opcodes under which unreliable queue pairs carry their work requests (IBTA vol. 1, tables 35 and 38).
#pragma once

#include <array>
#include <cstddef>

#include "proto/types.h"
#include "wire/opcode.h"

namespace beeline::proto {
namespace detail {
using enum wire::Opcode;
// Row: send, send_imm, write, write_imm; column: Position.
inline constexpr std::array<std::array<wire::Opcode, 4>, 4> connected_opcodes = {{
    {uc_send_first, uc_send_middle, uc_send_last, uc_send_only},
    {uc_send_first, uc_send_middle, uc_send_last_imm, uc_send_only_imm},
    {uc_write_first, uc_write_middle, uc_write_last, uc_write_only},
    {uc_write_first, uc_write_middle, uc_write_last_imm, uc_write_only_imm},
}};
inline constexpr std::array<wire::Opcode, 2> datagram_opcodes = {ud_send_only, ud_send_only_imm};
}  // namespace detail

// Rows of the tables above are in the order of WrOpcode.
static_assert(WrOpcode::send == WrOpcode{0} && WrOpcode::send_imm == WrOpcode{1} &&
              WrOpcode::write == WrOpcode{2} && WrOpcode::write_imm == WrOpcode{3});

// For work requests that the type offers.
constexpr wire::Opcode unreliable_opcode(QpType type, WrOpcode opcode, wire::Position position) {
  const auto row = static_cast<std::size_t>(opcode);
  return type == QpType::ud ? detail::datagram_opcodes[row]
                            : detail::connected_opcodes[row][static_cast<std::size_t>(position)];
}

}  // namespace beeline::proto
