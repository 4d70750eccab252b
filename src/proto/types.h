// What goes into and comes out of a queue pair, free of any verbs header.
// The vocabulary is that of the verbs (IBTA vol. 1, chapter 11).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/time.h"
#include "wire/headers.h"

namespace beeline::proto {

inline constexpr std::size_t max_sge = 16;
inline constexpr std::size_t max_inline_bytes = 256;
inline constexpr std::uint32_t max_outstanding_reads = 16;        // per queue pair and direction
inline constexpr std::uint32_t max_message_bytes = 0x8000'0000u;  // 2 GiB (IBTA vol. 1, 9.7.7)

// One piece of registered memory of a work request.
struct Sge {
  std::uint64_t address = 0;
  std::uint32_t length = 0;  // bytes
  Key lkey{};
};

enum class WrOpcode : std::uint8_t { send, send_imm, write, write_imm, read };

struct SendWr {
  std::uint64_t wr_id = 0;
  WrOpcode opcode{};
  bool signaled = false;
  bool solicited = false;
  bool fence = false;
  bool inline_data = false;     // the bytes are copied at post time, lkeys are ignored
  std::uint32_t immediate = 0;  // host order
  std::uint64_t remote_address = 0;
  Key rkey{};
  std::span<const Sge> sges;  // copied at post time
};

struct RecvWr {
  std::uint64_t wr_id = 0;
  std::span<const Sge> sges;  // copied at post time
};

enum class PostResult : std::uint8_t { ok, queue_full, too_many_sges, too_long, inline_too_long, bad_state };

// Values and meaning of enum ibv_wc_status (IBTA vol. 1, 11.6.2).
enum class WcStatus : std::uint8_t {
  success = 0,
  local_length_error = 1,
  local_qp_operation_error = 2,
  local_protection_error = 4,
  flushed = 5,
  remote_invalid_request = 9,
  remote_access_error = 10,
  remote_operation_error = 11,
  retry_exceeded = 12,
  rnr_retry_exceeded = 13,
};

enum class WcOpcode : std::uint8_t { send, write, read, receive, receive_write_imm };

// One completion. In an error only wr_id, status, qpn and is_receive mean anything.
struct Completion {
  std::uint64_t wr_id = 0;
  WcStatus status = WcStatus::success;
  WcOpcode opcode{};
  bool is_receive = false;  // which completion queue it belongs to
  bool has_immediate = false;
  bool solicited = false;
  std::uint32_t immediate = 0;
  std::uint32_t byte_length = 0;  // receives and READ; for WRITE with immediate the bytes written
  Qpn qpn{};
};

// Access rights of a region or queue pair (bits as in enum ibv_access_flags).
enum class Access : std::uint8_t { none = 0, local_write = 1, remote_write = 2, remote_read = 4 };
constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
constexpr bool allows(Access have, Access need) {
  return (static_cast<std::uint8_t>(have) & static_cast<std::uint8_t>(need)) ==
         static_cast<std::uint8_t>(need);
}

enum class MemoryStatus : std::uint8_t { ok, bad_key, wrong_domain, out_of_bounds, no_permission, fault };

// Registered memory as the protocol sees it. The card implements it with regions,
// gates and guarded copies; tests with a vector. Every call checks key, domain,
// bounds (without overflow) and rights anew, since a region may go away between packets.
// Zero bytes need no valid key.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual MemoryStatus check(PdId domain, Key key, std::uint64_t address, std::uint64_t length,
                             Access need) = 0;
  // Copies received bytes into the region.
  virtual MemoryStatus write(PdId domain, Key key, std::uint64_t address, Bytes data, Access need) = 0;
  // Copies out of the region.
  virtual MemoryStatus read(PdId domain, Key key, std::uint64_t address, MutableBytes out, Access need) = 0;
};

// Where payload bytes of an outgoing packet lie.
struct MemoryRef {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  Key key{};
  Access need = Access::none;  // what the sender must recheck when it reads: remote_read for READ responses
};

// One packet to send: headers by value, payload by reference. Valid until the
// next call on the queue pair that produced it.
struct TxDesc {
  wire::Headers headers;  // complete, pad_count included
  std::array<MemoryRef, max_sge> refs{};
  std::uint8_t ref_count = 0;
  Bytes inline_payload;  // instead of refs, for inline data
  std::uint32_t payload_bytes = 0;
  // Copy the payload before computing the ICRC: retransmissions (the application may be
  // changing the memory: a second mismatch must be impossible). Small ones are copied anyhow.
  bool must_copy = false;
};

// IBTA vol. 1, figure 124. SQD is refused in this release.
enum class QpState : std::uint8_t { reset, init, rtr, rts, sqe, err };

}  // namespace beeline::proto
