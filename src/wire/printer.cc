#include "wire/printer.h"

#include <fmt/format.h>

#include <iterator>

namespace beeline::wire {
namespace {

std::string_view name(NakCode code) {
  switch (code) {
    case NakCode::psn_sequence:
      return "psn_sequence";
    case NakCode::invalid_request:
      return "invalid_request";
    case NakCode::remote_access:
      return "remote_access";
    case NakCode::remote_operation:
      return "remote_operation";
  }
  return "reserved";
}

std::string describe(const Aeth& aeth) {
  switch (aeth.kind()) {
    case AckKind::ack:
      return aeth.value() == 0x1F ? std::string("ack") : fmt::format("ack credits={}", aeth.value());
    case AckKind::rnr_nak:
      return fmt::format("rnr_nak timer={}", aeth.value());
    case AckKind::nak:
      return fmt::format("nak={}", name(NakCode{aeth.value()}));
    case AckKind::reserved:
      break;
  }
  return fmt::format("syndrome=0x{:02x}", aeth.syndrome);
}

void print_atomic(Opcode opcode, const AtomicEth& atomic, std::string& line) {
  auto out = std::back_inserter(line);
  fmt::format_to(out, " va=0x{:x} rkey=0x{:08x}", atomic.address, atomic.rkey.value);
  if (opcode == Opcode::rc_fetch_add) {
    fmt::format_to(out, " add=0x{:x}", atomic.swap_or_add);
  } else {
    fmt::format_to(out, " compare=0x{:x} swap=0x{:x}", atomic.compare, atomic.swap_or_add);
  }
}

}  // namespace

std::string to_string(const PacketView& packet) { return to_string(packet.headers, packet.payload.size()); }

std::string to_string(const Headers& headers, std::size_t payload_bytes) {
  const Bth& bth = headers.bth;
  const OpcodeInfo* const row = find_opcode(static_cast<std::uint8_t>(bth.opcode));
  if (row == nullptr) return fmt::format("opcode 0x{:02x}", static_cast<unsigned>(bth.opcode));

  std::string line;
  auto out = std::back_inserter(line);
  fmt::format_to(out, "{} qp=0x{:06x} psn={}", row->name, bth.destination.value, bth.psn.value);
  if (row->has_deth)
    fmt::format_to(out, " qkey=0x{:08x} src_qp=0x{:06x}", headers.deth.qkey, headers.deth.source.value);
  if (row->has_reth)
    fmt::format_to(out, " va=0x{:x} rkey=0x{:08x} len={}", headers.reth.address, headers.reth.rkey.value,
                   headers.reth.length);
  if (row->has_atomic_eth) print_atomic(row->opcode, headers.atomic, line);
  if (row->has_aeth) fmt::format_to(out, " {} msn={}", describe(headers.aeth), headers.aeth.msn);
  if (row->has_atomic_ack_eth) fmt::format_to(out, " before=0x{:x}", headers.atomic_before);
  if (row->has_immediate) fmt::format_to(out, " imm=0x{:08x}", headers.immediate);
  if (row->has_ieth) fmt::format_to(out, " inv=0x{:08x}", headers.invalidate.value);
  if (row->payload != PayloadRule::none) fmt::format_to(out, " payload={}", payload_bytes);
  if (bth.pkey != default_pkey) fmt::format_to(out, " pkey=0x{:04x}", bth.pkey);
  if (bth.ack_request) line += " ackreq";
  if (bth.solicited) line += " solicited";
  if (bth.fecn) line += " fecn";
  if (bth.becn) line += " becn";
  return line;
}

}  // namespace beeline::wire
