#include "wire/opcode.h"

#include <array>

#include "base/check.h"
#include "wire/headers.h"

namespace beeline::wire {
namespace {

// The columns of extension headers, so that a row reads as the specification's table does.
struct Extensions {
  bool deth = false;
  bool reth = false;
  bool atomic = false;
  bool aeth = false;
  bool atomic_ack = false;
  bool immediate = false;
  bool ieth = false;
};
constexpr Extensions bare{};
constexpr Extensions reth{.reth = true};
constexpr Extensions reth_imm{.reth = true, .immediate = true};
constexpr Extensions aeth{.aeth = true};
constexpr Extensions aeth_atomic{.aeth = true, .atomic_ack = true};
constexpr Extensions atomic{.atomic = true};
constexpr Extensions imm{.immediate = true};
constexpr Extensions ieth{.ieth = true};
constexpr Extensions deth{.deth = true};
constexpr Extensions deth_imm{.deth = true, .immediate = true};

// The top three bits of an opcode name the service (IBTA vol. 1, 9.2.1).
constexpr Service service_of(Opcode opcode) {
  switch (static_cast<std::uint8_t>(opcode) >> 5) {
    case 0:
      return Service::rc;
    case 1:
      return Service::uc;
    default:
      return Service::ud;
  }
}

constexpr OpcodeInfo row(Opcode opcode, std::string_view name, Kind kind, Position position,
                         const Extensions& has, PayloadRule payload) {
  return {opcode,   name,       service_of(opcode), kind,           position,      payload, has.deth,
          has.reth, has.atomic, has.aeth,           has.atomic_ack, has.immediate, has.ieth};
}

using enum Opcode;
using enum Position;
using enum PayloadRule;

constexpr std::array table{
    row(rc_send_first, "RC SEND FIRST", Kind::send, first, bare, full),
    row(rc_send_middle, "RC SEND MIDDLE", Kind::send, middle, bare, full),
    row(rc_send_last, "RC SEND LAST", Kind::send, last, bare, one_to_mtu),
    row(rc_send_last_imm, "RC SEND LAST IMM", Kind::send, last, imm, one_to_mtu),
    row(rc_send_only, "RC SEND ONLY", Kind::send, only, bare, zero_to_mtu),
    row(rc_send_only_imm, "RC SEND ONLY IMM", Kind::send, only, imm, zero_to_mtu),
    row(rc_write_first, "RC WRITE FIRST", Kind::write, first, reth, full),
    row(rc_write_middle, "RC WRITE MIDDLE", Kind::write, middle, bare, full),
    row(rc_write_last, "RC WRITE LAST", Kind::write, last, bare, one_to_mtu),
    row(rc_write_last_imm, "RC WRITE LAST IMM", Kind::write, last, imm, one_to_mtu),
    row(rc_write_only, "RC WRITE ONLY", Kind::write, only, reth, zero_to_mtu),
    row(rc_write_only_imm, "RC WRITE ONLY IMM", Kind::write, only, reth_imm, zero_to_mtu),
    row(rc_read_request, "RC READ REQUEST", Kind::read_request, only, reth, none),
    row(rc_read_response_first, "RC READ RESPONSE FIRST", Kind::read_response, first, aeth, full),
    row(rc_read_response_middle, "RC READ RESPONSE MIDDLE", Kind::read_response, middle, bare, full),
    row(rc_read_response_last, "RC READ RESPONSE LAST", Kind::read_response, last, aeth, one_to_mtu),
    row(rc_read_response_only, "RC READ RESPONSE ONLY", Kind::read_response, only, aeth, zero_to_mtu),
    row(rc_acknowledge, "RC ACKNOWLEDGE", Kind::acknowledge, only, aeth, none),
    row(rc_atomic_acknowledge, "RC ATOMIC ACKNOWLEDGE", Kind::atomic_acknowledge, only, aeth_atomic, none),
    row(rc_compare_swap, "RC COMPARE SWAP", Kind::atomic_request, only, atomic, none),
    row(rc_fetch_add, "RC FETCH ADD", Kind::atomic_request, only, atomic, none),
    row(rc_send_last_inv, "RC SEND LAST INV", Kind::send, last, ieth, one_to_mtu),
    row(rc_send_only_inv, "RC SEND ONLY INV", Kind::send, only, ieth, zero_to_mtu),
    row(uc_send_first, "UC SEND FIRST", Kind::send, first, bare, full),
    row(uc_send_middle, "UC SEND MIDDLE", Kind::send, middle, bare, full),
    row(uc_send_last, "UC SEND LAST", Kind::send, last, bare, one_to_mtu),
    row(uc_send_last_imm, "UC SEND LAST IMM", Kind::send, last, imm, one_to_mtu),
    row(uc_send_only, "UC SEND ONLY", Kind::send, only, bare, zero_to_mtu),
    row(uc_send_only_imm, "UC SEND ONLY IMM", Kind::send, only, imm, zero_to_mtu),
    row(uc_write_first, "UC WRITE FIRST", Kind::write, first, reth, full),
    row(uc_write_middle, "UC WRITE MIDDLE", Kind::write, middle, bare, full),
    row(uc_write_last, "UC WRITE LAST", Kind::write, last, bare, one_to_mtu),
    row(uc_write_last_imm, "UC WRITE LAST IMM", Kind::write, last, imm, one_to_mtu),
    row(uc_write_only, "UC WRITE ONLY", Kind::write, only, reth, zero_to_mtu),
    row(uc_write_only_imm, "UC WRITE ONLY IMM", Kind::write, only, reth_imm, zero_to_mtu),
    row(ud_send_only, "UD SEND ONLY", Kind::send, only, deth, zero_to_mtu),
    row(ud_send_only_imm, "UD SEND ONLY IMM", Kind::send, only, deth_imm, zero_to_mtu),
};

// One pointer per opcode byte.
constexpr auto by_value = [] {
  std::array<const OpcodeInfo*, 256> index{};
  for (const OpcodeInfo& entry : table) index[static_cast<std::uint8_t>(entry.opcode)] = &entry;
  return index;
}();

}  // namespace

std::span<const OpcodeInfo> opcode_table() { return table; }

const OpcodeInfo* find_opcode(std::uint8_t value) { return by_value[value]; }

const OpcodeInfo& info(Opcode opcode) {
  const OpcodeInfo* entry = find_opcode(static_cast<std::uint8_t>(opcode));
  BEELINE_CHECK(entry != nullptr);
  return *entry;
}

std::size_t header_bytes(const OpcodeInfo& entry) {
  return bth_bytes + (entry.has_deth ? deth_bytes : 0) + (entry.has_reth ? reth_bytes : 0) +
         (entry.has_atomic_eth ? atomic_eth_bytes : 0) + (entry.has_aeth ? aeth_bytes : 0) +
         (entry.has_atomic_ack_eth ? atomic_ack_eth_bytes : 0) + (entry.has_immediate ? immediate_bytes : 0) +
         (entry.has_ieth ? ieth_bytes : 0);
}

}  // namespace beeline::wire
