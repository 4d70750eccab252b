#include "wire/packet.h"

#include "base/check.h"

namespace beeline::wire {
namespace {

// Bits of BTH byte 1 (IBTA vol. 1, 9.2).
constexpr std::uint8_t solicited_bit = 0x80;
constexpr std::uint8_t migration_bit = 0x40;
constexpr unsigned pad_shift = 4;
constexpr std::uint8_t version_mask = 0x0F;
// Byte 4: congestion marks, in the place that the ICRC masks.
constexpr std::uint8_t fecn_bit = 0x80;
constexpr std::uint8_t becn_bit = 0x40;
// Byte 8.
constexpr std::uint8_t ack_request_bit = 0x80;

constexpr std::uint8_t bit_if(bool condition, std::uint8_t bit) { return condition ? bit : std::uint8_t{0}; }

Bth parse_bth(const std::byte* p, Opcode opcode) {
  const std::uint8_t flags = load_u8(p + 1);
  const std::uint8_t congestion = load_u8(p + 4);
  Bth bth;
  bth.opcode = opcode;
  bth.solicited = (flags & solicited_bit) != 0;
  bth.migration_request = (flags & migration_bit) != 0;
  bth.pad_count = (flags >> pad_shift) & 3;
  bth.pkey = load_be16(p + 2);
  bth.fecn = (congestion & fecn_bit) != 0;
  bth.becn = (congestion & becn_bit) != 0;
  bth.destination = Qpn{load_be24(p + 5)};
  bth.ack_request = (load_u8(p + 8) & ack_request_bit) != 0;
  bth.psn = Psn{load_be24(p + 9)};
  return bth;
}

void emit_bth(const Bth& bth, std::byte* p) {
  store_u8(p, static_cast<std::uint8_t>(bth.opcode));
  store_u8(p + 1, static_cast<std::uint8_t>(bit_if(bth.solicited, solicited_bit) |
                                            bit_if(bth.migration_request, migration_bit) |
                                            (bth.pad_count & 3) << pad_shift));
  store_be16(p + 2, bth.pkey);
  store_u8(p + 4, static_cast<std::uint8_t>(bit_if(bth.fecn, fecn_bit) | bit_if(bth.becn, becn_bit)));
  store_be24(p + 5, bth.destination.value);
  store_u8(p + 8, bit_if(bth.ack_request, ack_request_bit));
  store_be24(p + 9, bth.psn.value);
}

// The extension headers follow BTH in this order (IBTA vol. 1, 9.3 and table 35).
void parse_extensions(const OpcodeInfo& row, const std::byte* p, Headers& headers) {
  if (row.has_deth) {
    headers.deth = {load_be32(p), Qpn{load_be24(p + 5)}};
    p += deth_bytes;
  }
  if (row.has_reth) {
    headers.reth = {load_be64(p), Key{load_be32(p + 8)}, load_be32(p + 12)};
    p += reth_bytes;
  }
  if (row.has_atomic_eth) {
    headers.atomic = {load_be64(p), Key{load_be32(p + 8)}, load_be64(p + 12), load_be64(p + 20)};
    p += atomic_eth_bytes;
  }
  if (row.has_aeth) {
    headers.aeth = {load_u8(p), load_be24(p + 1)};
    p += aeth_bytes;
  }
  if (row.has_atomic_ack_eth) {
    headers.atomic_before = load_be64(p);
    p += atomic_ack_eth_bytes;
  }
  if (row.has_immediate) {
    headers.immediate = load_be32(p);
    p += immediate_bytes;
  }
  if (row.has_ieth) headers.invalidate = Key{load_be32(p)};
}

void emit_extensions(const OpcodeInfo& row, const Headers& headers, std::byte* p) {
  if (row.has_deth) {
    store_be32(p, headers.deth.qkey);
    store_u8(p + 4, 0);
    store_be24(p + 5, headers.deth.source.value);
    p += deth_bytes;
  }
  if (row.has_reth) {
    store_be64(p, headers.reth.address);
    store_be32(p + 8, headers.reth.rkey.value);
    store_be32(p + 12, headers.reth.length);
    p += reth_bytes;
  }
  if (row.has_atomic_eth) {
    store_be64(p, headers.atomic.address);
    store_be32(p + 8, headers.atomic.rkey.value);
    store_be64(p + 12, headers.atomic.swap_or_add);
    store_be64(p + 20, headers.atomic.compare);
    p += atomic_eth_bytes;
  }
  if (row.has_aeth) {
    store_u8(p, headers.aeth.syndrome);
    store_be24(p + 1, headers.aeth.msn);
    p += aeth_bytes;
  }
  if (row.has_atomic_ack_eth) {
    store_be64(p, headers.atomic_before);
    p += atomic_ack_eth_bytes;
  }
  if (row.has_immediate) {
    store_be32(p, headers.immediate);
    p += immediate_bytes;
  }
  if (row.has_ieth) store_be32(p, headers.invalidate.value);
}

}  // namespace

std::string_view name(ParseError error) {
  switch (error) {
    case ParseError::too_short:
      return "too short";
    case ParseError::unknown_opcode:
      return "unknown opcode";
    case ParseError::bad_version:
      return "bad transport version";
    case ParseError::bad_length:
      return "bad length";
    case ParseError::unexpected_payload:
      return "unexpected payload";
  }
  return "?";
}

tl::expected<PacketView, ParseError> parse(Bytes datagram) {
  if (datagram.size() < bth_bytes + icrc_bytes) return tl::unexpected(ParseError::too_short);
  const std::byte* const start = datagram.data();
  const OpcodeInfo* const row = find_opcode(load_u8(start));
  if (row == nullptr) return tl::unexpected(ParseError::unknown_opcode);
  if ((load_u8(start + 1) & version_mask) != 0) return tl::unexpected(ParseError::bad_version);
  const std::size_t headers_end = header_bytes(*row);
  if (datagram.size() < headers_end + icrc_bytes) return tl::unexpected(ParseError::too_short);

  PacketView view;
  view.info = row;
  view.headers.bth = parse_bth(start, row->opcode);
  const std::size_t padded_bytes = datagram.size() - headers_end - icrc_bytes;
  const std::size_t pad_count = view.headers.bth.pad_count;
  if (padded_bytes % 4 != 0 || pad_count > padded_bytes) return tl::unexpected(ParseError::bad_length);
  if (row->payload == PayloadRule::none && padded_bytes != 0)
    return tl::unexpected(ParseError::unexpected_payload);

  parse_extensions(*row, start + bth_bytes, view.headers);
  view.payload = datagram.subspan(headers_end, padded_bytes - pad_count);
  return view;
}

std::size_t emit(const Headers& headers, MutableBytes out) {
  BEELINE_CHECK(out.size() >= max_header_bytes);
  const OpcodeInfo& row = info(headers.bth.opcode);
  emit_bth(headers.bth, out.data());
  emit_extensions(row, headers, out.data() + bth_bytes);
  return header_bytes(row);
}

bool payload_fits(const OpcodeInfo& row, std::size_t payload_bytes, std::size_t path_mtu) {
  switch (row.payload) {
    case PayloadRule::none:
      return payload_bytes == 0;
    case PayloadRule::full:
      return payload_bytes == path_mtu;
    case PayloadRule::one_to_mtu:
      return payload_bytes >= 1 && payload_bytes <= path_mtu;
    case PayloadRule::zero_to_mtu:
      return payload_bytes <= path_mtu;
  }
  return false;
}

}  // namespace beeline::wire
