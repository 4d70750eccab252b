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
  rc_atomic_acknowledge = 0x12,
  rc_compare_swap = 0x13,
  rc_fetch_add = 0x14,
  rc_send_last_inv = 0x16,
  rc_send_only_inv = 0x17,
  uc_send_first = 0x20,
  uc_send_middle = 0x21,
  uc_send_last = 0x22,
  uc_send_last_imm = 0x23,
  uc_send_only = 0x24,
  uc_send_only_imm = 0x25,
  uc_write_first = 0x26,
  uc_write_middle = 0x27,
  uc_write_last = 0x28,
  uc_write_last_imm = 0x29,
  uc_write_only = 0x2A,
  uc_write_only_imm = 0x2B,
  ud_send_only = 0x64,
  ud_send_only_imm = 0x65,
};

// What the packet is part of.
enum class Kind : std::uint8_t {
  send,
  write,
  read_request,
  read_response,
  acknowledge,
  atomic_request,
  atomic_acknowledge,
};
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
  PayloadRule payload;
  // Its extension headers, in their order on the wire.
  bool has_deth;
  bool has_reth;
  bool has_atomic_eth;
  bool has_aeth;
  bool has_atomic_ack_eth;
  bool has_immediate;
  bool has_ieth;

  constexpr bool starts_message() const { return position == Position::first || position == Position::only; }
  constexpr bool ends_message() const { return position == Position::last || position == Position::only; }
  constexpr bool is_request() const {
    return kind == Kind::send || kind == Kind::write || kind == Kind::read_request ||
           kind == Kind::atomic_request;
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
