// Transport headers as values: what can be parsed can be emitted, and back.
// Field layouts: IBTA vol. 1, 9.2 (BTH) and 9.3 (extension headers).
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "wire/opcode.h"

namespace beeline::wire {

inline constexpr std::size_t bth_bytes = 12;
inline constexpr std::size_t reth_bytes = 16;
inline constexpr std::size_t aeth_bytes = 4;
inline constexpr std::size_t immediate_bytes = 4;
inline constexpr std::size_t atomic_eth_bytes = 28;
inline constexpr std::size_t atomic_ack_eth_bytes = 8;
inline constexpr std::size_t ieth_bytes = 4;
inline constexpr std::size_t deth_bytes = 8;
inline constexpr std::size_t icrc_bytes = 4;
inline constexpr std::size_t max_header_bytes = bth_bytes + atomic_eth_bytes;  // of COMPARE SWAP
inline constexpr std::uint16_t default_pkey = 0xFFFF;
inline constexpr std::uint16_t roce_v2_port = 4791;

// Base transport header.
struct Bth {
  Opcode opcode{};
  bool solicited = false;
  bool migration_request = true;  // hardware sends 1, rxe 0; both are accepted
  std::uint8_t pad_count = 0;     // 0 … 3, bytes behind the payload
  std::uint16_t pkey = default_pkey;
  bool fecn = false;
  bool becn = false;
  Qpn destination{};
  bool ack_request = false;
  Psn psn{};

  friend constexpr bool operator==(const Bth&, const Bth&) = default;
};

// RDMA extended transport header; `length` is that of the whole message.
struct Reth {
  std::uint64_t address = 0;
  Key rkey{};
  std::uint32_t length = 0;

  friend constexpr bool operator==(const Reth&, const Reth&) = default;
};

// Datagram extended transport header.
struct Deth {
  std::uint32_t qkey = 0;
  Qpn source{};

  friend constexpr bool operator==(const Deth&, const Deth&) = default;
};

// Atomic extended transport header. The operands are numbers, whatever memory's byte order.
struct AtomicEth {
  std::uint64_t address = 0;
  Key rkey{};
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;  // COMPARE SWAP only; FETCH ADD carries the field without using it

  friend constexpr bool operator==(const AtomicEth&, const AtomicEth&) = default;
};

// AETH syndromes (IBTA vol. 1, table 44…47).
enum class AckKind : std::uint8_t { ack, rnr_nak, nak, reserved };
enum class NakCode : std::uint8_t {
  psn_sequence = 0,
  invalid_request = 1,
  remote_access = 2,
  remote_operation = 3,
};

// Acknowledge extended transport header.
struct Aeth {
  std::uint8_t syndrome = 0;
  std::uint32_t msn = 0;  // message sequence number, 24 bits

  friend constexpr bool operator==(const Aeth&, const Aeth&) = default;

  constexpr AckKind kind() const {
    switch (syndrome & 0x60) {
      case 0x00:
        return AckKind::ack;
      case 0x20:
        return AckKind::rnr_nak;
      case 0x60:
        return AckKind::nak;
      default:
        return AckKind::reserved;
    }
  }
  // Credit count, RNR timer index or NAK code, by kind.
  constexpr std::uint8_t value() const { return syndrome & 0x1F; }

  // 0x1F: no credit limit. Zero would be "no credits" and throttles hardware peers.
  static constexpr Aeth ack(std::uint32_t msn) { return {0x1F, msn}; }
  static constexpr Aeth rnr_nak(std::uint8_t timer, std::uint32_t msn) {
    return {static_cast<std::uint8_t>(0x20 | (timer & 0x1F)), msn};
  }
  static constexpr Aeth nak(NakCode code, std::uint32_t msn) {
    return {static_cast<std::uint8_t>(0x60 | static_cast<std::uint8_t>(code)), msn};
  }
};

// All headers of one packet. Which extension headers are meaningful is the
// opcode table's say; the others stay zero.
struct Headers {
  Bth bth;
  Deth deth;
  Reth reth;
  AtomicEth atomic;
  Aeth aeth;
  std::uint64_t atomic_before = 0;  // AtomicAckETH: what memory held before the operation
  std::uint32_t immediate = 0;      // host order of the big-endian field
  Key invalidate{};                 // IETH: the receiver's key that is to become invalid

  friend constexpr bool operator==(const Headers&, const Headers&) = default;
};

}  // namespace beeline::wire
