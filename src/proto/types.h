// What goes into and comes out of a queue pair, free of any verbs header.
// The vocabulary is that of the verbs (IBTA vol. 1, chapter 11).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/address.h"
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

// What carries the messages (IBTA vol. 1, 9.6): reliable and unreliable connection, unreliable datagram.
enum class QpType : std::uint8_t { rc, uc, ud };

enum class WrOpcode : std::uint8_t {
  send,
  send_imm,
  write,
  write_imm,
  read,
  compare_swap,
  fetch_add,
  send_inv,   // SEND with invalidate: `invalidate` is the peer's rkey
  local_inv,  // makes a window of this side invalid; no packet
  bind_mw,    // binds a memory window; no packet
};

// Where datagrams go and come from, for an address handle: nothing but the card looks inside.
struct Path {
  IpAddress local;
  IpAddress remote;
  std::uint16_t source_port = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
};

// The address of a datagram (UD only), copied at post time.
struct DatagramTarget {
  Path path;
  Qpn remote_qpn{};
  std::uint32_t remote_qkey = 0;  // with the top bit set: the queue pair's own Q_Key is sent instead
};

// What a bind asks for (IBTA vol. 1, 11.4.3.6). `length` 0 makes the window invalid.
struct WindowBind {
  Key window{};    // an rkey that the window has or had
  Key new_rkey{};  // the one it has once bound
  Key region{};    // lkey of the region under it
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint8_t access = 0;  // of Access: remote rights, zero_based
};

struct SendWr {
  std::uint64_t wr_id = 0;
  WrOpcode opcode{};
  bool signaled = false;
  bool solicited = false;
  bool fence = false;
  bool inline_data = false;     // the bytes are copied at post time, lkeys are ignored
  bool placed = false;          // local lane: the bytes of this WRITE lie where they are to go (may_place())
  std::uint32_t immediate = 0;  // host order
  std::uint64_t remote_address = 0;
  Key rkey{};
  std::span<const Sge> sges;  // copied at post time
  // compare_swap: `compare`, and `swap_or_add` is swapped in; fetch_add: `swap_or_add` is added. Host order.
  std::uint64_t compare = 0;
  std::uint64_t swap_or_add = 0;
  Key invalidate{};                        // send_inv: the peer's key; local_inv: ours
  const DatagramTarget* target = nullptr;  // of a datagram
  const WindowBind* bind = nullptr;        // of bind_mw
};

struct RecvWr {
  std::uint64_t wr_id = 0;
  std::span<const Sge> sges;  // copied at post time
};

enum class PostResult : std::uint8_t {
  ok,
  queue_full,
  too_many_sges,
  too_long,
  inline_too_long,
  bad_state,
  invalid,  // not an operation of this type of queue pair, or without what it needs
};

// Values and meaning of enum ibv_wc_status (IBTA vol. 1, 11.6.2).
enum class WcStatus : std::uint8_t {
  success = 0,
  local_length_error = 1,
  local_qp_operation_error = 2,
  local_protection_error = 4,
  flushed = 5,
  window_bind_error = 6,
  bad_response = 7,
  local_access_error = 8,
  remote_invalid_request = 9,
  remote_access_error = 10,
  remote_operation_error = 11,
  retry_exceeded = 12,
  rnr_retry_exceeded = 13,
};

enum class WcOpcode : std::uint8_t {
  send,
  write,
  read,
  receive,
  receive_write_imm,
  compare_swap,
  fetch_add,
  bind_mw,
  local_inv,
};

// One completion. In an error only wr_id, status, qpn and is_receive mean anything.
struct Completion {
  std::uint64_t wr_id = 0;
  WcStatus status = WcStatus::success;
  WcOpcode opcode{};
  bool is_receive = false;  // which completion queue it belongs to
  bool has_immediate = false;
  bool solicited = false;
  std::uint32_t immediate = 0;
  std::uint32_t byte_length = 0;  // receives, READ, atomics; for WRITE with immediate the bytes written
  Qpn qpn{};
  bool has_invalidated = false;  // a SEND with invalidate made `invalidated` invalid
  Key invalidated{};
  bool has_grh = false;      // datagrams: the first 40 bytes of the buffer hold the GRH area
  bool grh_is_ipv4 = false;  // and its last 20 are an IPv4 header
  Qpn source_qpn{};          // datagrams
};

// Access rights of a region or queue pair (bits as in enum ibv_access_flags).
enum class Access : std::uint8_t {
  none = 0,
  local_write = 1,
  remote_write = 2,
  remote_read = 4,
  remote_atomic = 8,
  window_bind = 16,
  zero_based = 32,
};
constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
constexpr bool allows(Access have, Access need) {
  return (static_cast<std::uint8_t>(have) & static_cast<std::uint8_t>(need)) ==
         static_cast<std::uint8_t>(need);
}

enum class MemoryStatus : std::uint8_t { ok, bad_key, wrong_domain, out_of_bounds, no_permission, fault };

enum class AtomicOp : std::uint8_t { compare_swap, fetch_add };

// Bytes that are still to be fetched, straight to where they belong.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // The next to.size() of them. False: they could not be fetched, or not be put there.
  virtual bool fetch(MutableBytes to) = 0;
  // Whether it was the source that failed.
  virtual bool is_broken() const = 0;
};

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

  // The rest has an answer for memories that offer none of it.

  // write() of bytes that are fetched there, without a copy between.
  virtual MemoryStatus fill(PdId, Key, std::uint64_t /*address*/, std::uint64_t /*length*/, Access /*need*/,
                            ByteSource&) {
    return MemoryStatus::no_permission;
  }
  // Where these bytes lie in this process.
  virtual MemoryStatus locate(PdId, Key, std::uint64_t /*address*/, std::uint64_t /*length*/, Access /*need*/,
                              std::uint64_t& /*where*/) {
    return MemoryStatus::no_permission;
  }

  // Atomic among all atomics of this card (IBTA vol. 1, 9.4.5). `address` is a multiple of 8; needs
  // remote_atomic. The value lies in memory in host order; `before` gets what it was.
  virtual MemoryStatus atomic(PdId, Key, std::uint64_t /*address*/, AtomicOp, std::uint64_t /*compare*/,
                              std::uint64_t /*swap_or_add*/, std::uint64_t& /*before*/) {
    return MemoryStatus::no_permission;
  }
  // For a request that came over queue pair `qpn`: whether it may use `key` at all. A type 2 window
  // serves one queue pair only (IBTA vol. 1, 10.6.7.2.4); everything else serves its domain.
  virtual MemoryStatus check_user(Key, Qpn) { return MemoryStatus::ok; }
  // By SEND with invalidate or local invalidate, on this queue pair: afterwards the key is good for nothing.
  virtual MemoryStatus invalidate(PdId, Qpn, Key) { return MemoryStatus::bad_key; }
  virtual MemoryStatus bind(PdId, Qpn, const WindowBind&) { return MemoryStatus::bad_key; }
};

// How a packet came, for what a datagram's receiver is told of it.
struct Arrival {
  IpAddress source;
  IpAddress destination;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
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
  // Not in a train: in case those are what does not arrive.
  bool alone = false;
  const Path* path = nullptr;  // of a datagram; the others go to the queue pair's peer
};

// IBTA vol. 1, figure 124.
enum class QpState : std::uint8_t { reset, init, rtr, rts, sqd, sqe, err };

// What a queue pair reports beside completions; a set of bits. The card turns them into
// asynchronous events (IBTA vol. 1, 11.6.3).
enum class QpEvent : std::uint8_t {
  none = 0,
  communication_established = 1,  // the first packet came while in RTR
  send_queue_drained = 2,
  fatal = 4,                 // an error of this side took it to ERR outside of a work request
  invalid_request = 8,       // the peer's request made no sense: IBV_EVENT_QP_REQ_ERR
  access_violation = 16,     // the peer's key, bounds or rights were wrong: IBV_EVENT_QP_ACCESS_ERR
  last_request_reached = 32  // in ERR with a shared receive queue: nothing more comes from there
};
constexpr QpEvent operator|(QpEvent a, QpEvent b) {
  return static_cast<QpEvent>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
constexpr bool contains(QpEvent set, QpEvent event) {
  return (static_cast<std::uint8_t>(set) & static_cast<std::uint8_t>(event)) != 0;
}

}  // namespace beeline::proto
