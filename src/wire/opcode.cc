#include "wire/opcode.h"

#include <array>

#include "base/check.h"
#include "wire/headers.h"

namespace beeline::wire {
namespace {

// The columns reth, aeth and immediate, so that a row reads as the specification's table does.
struct Extensions {
  bool reth = false;
  bool aeth = false;
  bool immediate = false;
};
constexpr Extensions bare{};
constexpr Extensions reth{true, false, false};
constexpr Extensions aeth{false, true, false};
constexpr Extensions imm{false, false, true};
constexpr Extensions reth_imm{true, false, true};

constexpr OpcodeInfo row(Opcode opcode, std::string_view name, Kind kind, Position position,
                         Extensions extensions, PayloadRule payload) {
  return {opcode, name, Service::rc, kind, position, extensions.reth, extensions.aeth, extensions.immediate,
          payload};
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
  return bth_bytes + (entry.has_reth ? reth_bytes : 0) + (entry.has_aeth ? aeth_bytes : 0) +
         (entry.has_immediate ? immediate_bytes : 0);
}

}  // namespace beeline::wire
