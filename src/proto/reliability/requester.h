// The requester of the wire lane: turns send requests into packets and answers into
// completions (IBTA vol. 1, 9.7.3, 9.7.5, 9.7.7).
//
// All of its state is three places in the stream of request packets:
//
//     acked  <=  cursor  <=  high
//
// Everything before `acked` is complete; `cursor` is what goes out next; `high` is the furthest
// that was ever sent. Going back N is `cursor = acked`. A READ is acknowledged by its data, packet by
// packet, so an interrupted READ resumes at the bytes received, and no ACK steps over it; an atomic
// likewise by its one answer.
//
// Operations without packets wait until all before them are complete, and are then carried out.
//
// A READ larger than the window is requested in pieces: the peer sees several READs, and
// responses never overrun the receive buffers.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "proto/ops/operations.h"
#include "proto/reliability/loss_window.h"
#include "proto/reliability/retransmit_timer.h"
#include "proto/ring.h"

namespace beeline::proto {

// What a packet counts against the window: its payload, but a small one takes room in
// socket buffers too.
inline constexpr std::uint32_t min_packet_charge = 512;
constexpr std::uint32_t packet_charge(std::uint32_t payload_bytes) {
  return payload_bytes < min_packet_charge ? min_packet_charge : payload_bytes;
}
// Keeps all PSNs in flight well inside half the number space.
inline constexpr std::uint32_t max_window_bytes = 1u << 30;

class Requester {
 public:
  Requester(Operations& operations, QpCounters& counters, std::uint32_t window_bytes);

  void start();  // RTR to RTS
  void stop();   // to ERR or RESET
  void set_window(std::uint32_t window_bytes);
  void reconfigure_timer(TimePoint now);  // the attributes changed
  // Nothing that has begun is left.
  bool idle() const { return acked_.sequence == planned_; }

  void handle_response(TimePoint now, const wire::PacketView& packet);
  void handle_timeout(TimePoint now);
  TimePoint next_timeout() const;

  bool wants_transmit(TimePoint now) const;
  std::size_t poll_transmit(TimePoint now, std::span<TxDesc> out);
  void transmit_fault(const TxDesc& desc);
  // Takes back the last packet that was polled.
  void take_back(const TxDesc& desc);

 private:
  struct Position {
    std::uint64_t sequence = 0;  // of the send request
    std::uint32_t packet = 0;    // within it
    friend constexpr auto operator<=>(const Position&,
                                      const Position&) = default;  // NOLINT(modernize-use-nullptr)
  };
  // Where the packets of a request lie in the stream.
  struct Plan {
    Psn first_psn;
    std::uint32_t packets = 0;
    std::uint32_t piece = 1;          // packets per READ request; fixed, since a repeated request
                                      // must not reach into the next one
    std::uint64_t charge_before = 0;  // window bytes of all packets before
  };
  // One packet to send, and what its answer covers.
  struct Step {
    std::uint32_t packets = 1;
    std::uint32_t bytes = 0;
    std::uint64_t charge = 0;
  };
  struct RoundTrip {
    bool running = false;
    Position until;  // measured when this is acknowledged
    TimePoint sent_at;
  };

  // requester.cc: sending
  const Plan& plan(std::uint64_t sequence) const { return plans_[operations_.sends().slot(sequence)]; }
  Position advanced(Position from, std::uint32_t packets) const;
  Psn psn_at(Position position) const;
  std::uint64_t charge_at(Position position) const;
  std::uint64_t in_flight() const { return charge_at(cursor_) - charge_at(acked_); }
  std::uint64_t window() const { return std::min<std::uint64_t>(window_bytes_, loss_window_.bytes()); }
  std::uint64_t full_charge() const { return packet_charge(mtu_); }
  Step step_of(std::uint32_t packets, std::uint32_t bytes) const;
  Step next_step() const;
  Plan make_plan(const SendRequest& request) const;
  bool begin(std::uint64_t sequence);
  void run_local();
  void emit(TimePoint now, TxDesc& desc);
  void build_data(const SendRequest& request, const Step& step, TxDesc& desc) const;
  void build_read(const SendRequest& request, const Step& step, TxDesc& desc) const;
  void build_atomic(const SendRequest& request, TxDesc& desc) const;
  bool should_request_ack(const TxDesc& desc, const Step& step);
  void note_sent(TimePoint now, const TxDesc& desc, Position first_answer);
  void mark_failed(std::uint64_t sequence, WcStatus status);
  void settle_failure();
  std::optional<Position> locate(Psn psn) const;

  // requester_answers.cc: receiving
  std::optional<std::uint32_t> offset_in_flight(Psn psn) const;
  void handle_ack(TimePoint now, std::uint32_t offset);
  void handle_nak(TimePoint now, std::uint32_t offset, std::uint8_t code);
  void handle_rnr(TimePoint now, std::uint32_t offset, std::uint8_t timer);
  void handle_data(TimePoint now, std::uint32_t offset, const wire::PacketView& packet);
  bool is_awaited(const wire::PacketView& packet) const;
  void take_data(TimePoint now, Bytes data);
  bool acknowledge(TimePoint now, std::uint32_t packets);
  void acknowledge_in_head(std::uint32_t packets);
  void note_progress(TimePoint now);
  void go_back_once(TimePoint now);
  void go_back_for_nak(TimePoint now);
  void go_back(TimePoint now);
  void rewind();

  Operations& operations_;
  QpCounters& counters_;
  std::vector<Plan> plans_;    // by slot of the send queue
  Ring<std::uint64_t> reads_;  // outstanding READ and atomic requests: charge at the end of each
  RetransmitTimer timer_;

  std::uint32_t window_bytes_;
  LossWindow loss_window_;
  std::uint32_t mtu_ = 1024;
  Position acked_, cursor_, high_;
  std::uint64_t planned_ = 0;      // sequence of the first request without a plan
  Psn next_psn_;                   // its first PSN
  std::uint64_t next_charge_ = 0;  // and its charge
  std::uint64_t charge_since_ack_request_ = 0;
  std::uint64_t charge_acknowledged_ = 0;
  bool went_back_ = false;  // since the last progress or timeout
  TimePoint went_back_at_;
  Psn rewound_to_;             // by the last rewind
  bool repeat_alone_ = false;  // no trains until what is repeated is through
  bool waiting_for_receiver_ = false;
  TimePoint wait_until_;
  std::uint8_t rnr_retries_left_ = 0;
  std::optional<std::uint64_t> failed_;  // request that cannot be sent; fails when it is the oldest
  WcStatus failed_status_ = WcStatus::success;
  RoundTrip round_trip_;
};

}  // namespace beeline::proto
