// A queue pair without I/O: reliable connection, unreliable connection or datagrams.
//
//   post_send, post_recv      work requests go in
//   handle_packet             packets go in
//   handle_timeout            time goes in, when next_timeout() said so
//   poll_transmit             packets come out
//   poll_completions          completions come out, in order, exactly once
//
// After any of the first three, call the two polls until they give nothing, then
// arrange for handle_timeout at next_timeout(). Not thread-safe: the owner holds
// one lock per queue pair. No call allocates after construction, none blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/time.h"
#include "proto/local/shared_pair.h"
#include "proto/types.h"
#include "wire/packet.h"

namespace beeline::proto {

struct QpLimits {
  std::uint32_t send_depth = 128;  // work requests
  std::uint32_t receive_depth = 128;
  std::uint32_t send_sges = 1;  // at most max_sge
  std::uint32_t receive_sges = 1;
  std::uint32_t inline_bytes = 0;  // at most max_inline_bytes
  bool signal_all = false;         // sq_sig_all
};

// Which attributes a modify carries (bits as in enum ibv_qp_attr_mask).
namespace attr {
inline constexpr std::uint32_t state = 1u << 0;
inline constexpr std::uint32_t current_state = 1u << 1;
inline constexpr std::uint32_t notify_drained = 1u << 2;  // IBV_QP_EN_SQD_ASYNC_NOTIFY
inline constexpr std::uint32_t access_flags = 1u << 3;
inline constexpr std::uint32_t pkey_index = 1u << 4;
inline constexpr std::uint32_t port = 1u << 5;
inline constexpr std::uint32_t qkey = 1u << 6;
inline constexpr std::uint32_t address_vector = 1u << 7;
inline constexpr std::uint32_t path_mtu = 1u << 8;
inline constexpr std::uint32_t timeout = 1u << 9;
inline constexpr std::uint32_t retry_count = 1u << 10;
inline constexpr std::uint32_t rnr_retry = 1u << 11;
inline constexpr std::uint32_t rq_psn = 1u << 12;
inline constexpr std::uint32_t max_rd_atomic = 1u << 13;
inline constexpr std::uint32_t min_rnr_timer = 1u << 15;
inline constexpr std::uint32_t sq_psn = 1u << 16;
inline constexpr std::uint32_t max_dest_rd_atomic = 1u << 17;
inline constexpr std::uint32_t destination_qp = 1u << 20;
}  // namespace attr

// Attributes as the protocol needs them. The address vector itself (GIDs) is the
// card's business: here only its mask bit counts.
struct QpAttr {
  QpState state = QpState::reset;
  QpState current_state = QpState::reset;
  std::uint32_t path_mtu_bytes = 1024;  // 256 … 4096, a power of two
  Access access = Access::none;
  Qpn destination{};
  Psn rq_psn{};
  Psn sq_psn{};
  std::uint8_t max_rd_atomic = 1;       // READs this side may have outstanding
  std::uint8_t max_dest_rd_atomic = 1;  // READs it serves at once
  std::uint8_t min_rnr_timer = 12;      // index of the RNR timer table
  std::uint8_t timeout = 14;            // 4.096 us * 2^timeout; 0: for ever
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;   // 7: for ever
  std::uint32_t qkey = 0;       // datagrams
  bool notify_drained = false;  // RTS to SQD: report send_queue_drained
};

struct QpCounters {
  std::uint64_t packets_sent = 0, packets_received = 0;
  std::uint64_t bytes_sent = 0, bytes_received = 0;  // payload
  std::uint64_t retransmitted_packets = 0, duplicate_packets = 0, out_of_sequence_packets = 0;
  std::uint64_t timeouts = 0, naks_sent = 0, naks_received = 0, rnr_naks_sent = 0, rnr_naks_received = 0;
  std::uint64_t dropped_packets = 0;  // wrong state, opcode out of place, stale
};

class SharedReceiveQueue;

// What carries the messages of a queue pair: packets, or memory that it shares with its peer's process. Of RC
// only; fixed by the first send in either direction until RESET.
enum class LaneRule : std::uint8_t { wire, automatic, local };
enum class LaneState : std::uint8_t { undecided, asking, wire, local };

struct QpSetup {
  Qpn qpn;
  PdId domain;
  QpLimits limits;
  Memory* memory = nullptr;  // outlives the queue pair
  // Unacknowledged payload bytes this queue pair may have on the wire.
  std::uint32_t window_bytes = 64 * 1024;
  QpType type = QpType::rc;
  SharedReceiveQueue* shared_receives = nullptr;  // instead of a receive queue of its own; outlives it
  std::uint32_t datagram_mtu_bytes = 4096;        // the card's active MTU: the most a datagram may carry
  LaneRule lane = LaneRule::wire;
};

// Of payload, on the local lane. Of those sent, `stored` were stores into the peer's memory, which its own
// count of received ones does not have.
struct LocalBytes {
  std::uint64_t sent = 0, received = 0, stored = 0;

  LocalBytes& operator+=(const LocalBytes& other) {
    sent += other.sent;
    received += other.received;
    stored += other.stored;
    return *this;
  }
};

class QueuePair {
 public:
  explicit QueuePair(const QpSetup& setup);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  // Checked against the transition table (ops/qp_state.h): the error names the states,
  // and the attributes that are missing or out of place.
  Result<void> modify(TimePoint now, const QpAttr& attributes, std::uint32_t mask);
  QpState state() const;
  const QpAttr& attributes() const;
  const QpLimits& limits() const;
  Qpn qpn() const;
  const QpCounters& counters() const;
  // Changes the window while running (the card budgets bytes per process).
  void set_window(std::uint32_t window_bytes);
  // Whether an acknowledgement may wait for a request to leave with (reliability/ack_hold.h); until
  // next_timeout(), which then says when it must leave.
  void allow_ack_hold(bool allowed);
  bool holds_ack(TimePoint now) const;
  // Where a request and an acknowledgement behind it leave as one train.
  void set_ack_last(bool last);

  PostResult post_send(TimePoint now, const SendWr& request);
  std::size_t send_room() const;  // how many more the send queue holds
  PostResult post_recv(const RecvWr& request);

  // `packet` passed the ICRC and names this queue pair; its source was compared with
  // the address vector by the card, but for datagrams.
  void handle_packet(TimePoint now, const wire::PacketView& packet, const Arrival& arrival = {});
  void handle_timeout(TimePoint now);
  TimePoint next_timeout() const;

  // Fills at most out.size() descriptors; returns how many. Descriptors count as sent.
  std::size_t poll_transmit(TimePoint now, std::span<TxDesc> out);
  // The payload of a descriptor could not be read (fault, or the region went away):
  // the packet was not sent. A request fails its work request with local_protection_error;
  // a READ response becomes a NAK (remote operation error). The queue pair goes to ERR.
  void transmit_fault(TimePoint now, const TxDesc& desc);
  // The socket refused these last descriptors (no room): they go out again later.
  // `unsent` is the tail of what the last poll_transmit returned.
  void transmit_refused(TimePoint now, std::span<const TxDesc> unsent);

  std::size_t poll_completions(std::span<Completion> out);
  bool has_completions() const;
  // What happened since the last call, beside completions.
  QpEvent take_events();
  // True when poll_transmit would give something at `now`.
  bool wants_transmit(TimePoint now) const;

  // --- the lane ---
  LaneState lane() const;
  // Work requests wait for somebody to ask the peer, and then to tell the answer.
  bool wants_lane() const;
  void note_asking();
  void take_wire();
  // The pair and the memory outlive the queue pair, or RESET. `side`: 0 or 1, the peer has the other.
  void take_local(local::SharedPair& pair, int side, local::PeerMemory& peer);
  // As after RESET.
  void leave_local();
  // There is no way to the peer: the oldest request fails with this status, the rest is flushed.
  void give_up_lane(WcStatus status);

  // On the local lane these take the place of handle_packet and poll_transmit.
  struct Step {
    bool published = false;  // the peer has something new to see
    bool more = false;       // there is more to do at once
  };
  Step step_local(TimePoint now);
  // Whether step_local would find anything: from any thread, as a hint.
  bool has_local_work() const;
  // Whether a WRITE may be executed by whoever posts it: every operation before it has been.
  bool may_write_directly() const;
  // It has been. One that asks for a completion gets it; refused as by post_send().
  void note_direct_write(std::uint32_t bytes);
  PostResult complete_direct_write(const SendWr& request, std::uint32_t bytes);
  // Whether whoever posts a WRITE may store its bytes first, and post it with `placed`.
  bool may_place() const;
  // True once after a receive request was posted that a request of the peer has waited for.
  bool take_waited_for();
  // True once after a post has put something where the peer sees it.
  bool take_published();
  // The peer's process is gone.
  void lose_local_peer(TimePoint now);
  TimePoint next_local_timeout() const;
  // Payload bytes that the local lane has carried, ever.
  LocalBytes local_bytes() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace beeline::proto
