// The opcodes of the base transport header as one table (IBTA vol. 1, table 35).
// Every rule about what a packet of an opcode looks like is a column here;
// nobody switches on opcode bytes elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace beeline::wire {

enum class Service : std::uint8_t { rc, uc, ud, cnp };

enum class Opcode : std::uint8_t {
  rc_send_first = 0x00,
  rc_send_middle = 0x01,
  rc_send_last = 0x02,
  rc_send_last_imm = 0x03,
  rc_send_only = 0x04,
  rc_send_only_imm = 0x05,
  rc_write_first = 0x06,
  rc_write_middle = 0x07,
  rc_write_last = 0x08,
  rc_write_last_imm = 0x09,
  rc_write_only = 0x0A,
  rc_write_only_imm = 0x0B,
  rc_read_request = 0x0C,
  rc_read_response_first = 0x0D,
  rc_read_response_middle = 0x0E,
  rc_read_response_last = 0x0F,
  rc_read_response_only = 0x10,
  rc_acknowledge = 0x11,
};

// What the packet is part of.
enum class Kind : std::uint8_t { send, write, read_request, read_response, acknowledge };
// Its place in the message.
enum class Position : std::uint8_t { first, middle, last, only };
// How many payload bytes it may carry, as a function of the path MTU
// (IBTA vol. 1, 9.4.1): first and middle packets are exactly full, a last one
// carries 1 … MTU, an only one 0 … MTU.
enum class PayloadRule : std::uint8_t { none, full, one_to_mtu, zero_to_mtu };

struct OpcodeInfo {
  Opcode opcode;
  std::string_view name;  // "RC SEND FIRST"
  Service service;
  Kind kind;
  Position position;
  bool has_reth;
  bool has_aeth;
  bool has_immediate;
  PayloadRule payload;

  constexpr bool starts_message() const { return position == Position::first || position == Position::only; }
  constexpr bool ends_message() const { return position == Position::last || position == Position::only; }
  constexpr bool is_request() const {
    return kind == Kind::send || kind == Kind::write || kind == Kind::read_request;
  }
};

// The whole table, ascending by opcode. Opcodes that this card does not speak are absent.
std::span<const OpcodeInfo> opcode_table();
// nullptr when the byte is no opcode of the table.
const OpcodeInfo* find_opcode(std::uint8_t value);
// For an opcode that is known to be in the table.
const OpcodeInfo& info(Opcode opcode);
// BTH plus extension headers, in bytes.
std::size_t header_bytes(const OpcodeInfo& row);

}  // namespace beeline::wire
