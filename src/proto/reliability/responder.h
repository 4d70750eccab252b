// The responder of the wire lane: puts requests in order, has them executed, answers
// (IBTA vol. 1, 9.7.4 and 9.7.5).
//
// Answers leave in PSN order: those of READs and atomics first, then a NAK or one ACK for everything that
// was handled since the last one; an ACK may wait a moment for company (ack_hold.h). Execution is
// ops/executor.h's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/time.h"
#include "proto/ops/operations.h"
#include "proto/reliability/ack_hold.h"
#include "proto/reliability/atomic_results.h"
#include "proto/reliability/read_jobs.h"

namespace beeline::proto {

class Responder {
 public:
  Responder(Operations& operations, QpCounters& counters) : operations_(operations), counters_(counters) {}

  void start();  // INIT to RTR
  void stop();   // to ERR or RESET

  void handle_request(TimePoint now, const wire::PacketView& packet);

  void allow_ack_hold(bool allowed) { hold_.allow(allowed); }
  bool holds_ack(TimePoint now) const { return ack_pending_ && !hold_.is_due(now); }
  // When an ACK that waits has waited enough.
  TimePoint next_timeout() const;

  bool wants_transmit(TimePoint now) const;
  // Whether there is more to send than an ACK.
  bool has_answers() const { return may_answer() && (nak_ || reads_.pending()); }
  bool has_ack() const { return may_answer() && ack_pending_; }
  // It must not depend on a train: the last may have been lost with one.
  bool ack_goes_first() const { return ack_repeated_; }
  // Once before the calls of poll_transmit that make up one batch.
  void begin_batch() { reads_.drop_finished(); }
  // `with_request`: a request leaves in the same batch, and takes along an ACK that waits.
  std::size_t poll_transmit(TimePoint now, std::span<TxDesc> out, bool with_request);
  // A request leaves.
  void note_request(TimePoint now) { hold_.note_request(now); }
  void transmit_fault(const TxDesc& desc);
  // Takes back a packet of the last batch.
  void take_back(const TxDesc& desc);

 private:
  struct Nak {
    wire::Aeth aeth;
    Psn psn;
  };

  void answer_in_error(Psn psn);
  void execute(TimePoint now, const wire::PacketView& packet);
  Verdict perform(const wire::PacketView& packet);
  Verdict accept_read(const wire::PacketView& packet);
  Verdict accept_atomic(const wire::PacketView& packet);
  void accept(TimePoint now, const wire::PacketView& packet, bool ends_message);
  void note_ack_wanted(TimePoint now, const wire::PacketView& packet);
  void repeat(const wire::PacketView& packet);
  void repeat_read(const wire::PacketView& packet);
  void repeat_atomic(const wire::PacketView& packet);
  void report_gap(Psn psn);
  void report_not_ready();
  void refuse(const Verdict& nak, Psn psn);

  bool may_answer() const { return operations_.can_receive() || last_words_; }
  void emit_response(ReadJob& job, TxDesc& desc);
  void emit_acknowledge(const wire::Aeth& aeth, Psn psn, TxDesc& desc);
  void emit_nak(TxDesc& desc);

  Operations& operations_;
  QpCounters& counters_;
  ReadJobs reads_;
  AtomicResults atomics_;
  Psn expected_;
  std::uint32_t msn_ = 0;      // messages completed, 24 bits (IBTA vol. 1, 9.7.7.1)
  bool gap_reported_ = false;  // cleared when the expected packet comes
  Psn last_ahead_;             // the last that came instead, since
  bool ack_pending_ = false;
  bool ack_repeated_ = false;  // the peer has asked again
  AckHold hold_;
  std::optional<Nak> nak_;      // to be sent
  std::optional<Nak> refusal_;  // the one that ended in ERR
  bool last_words_ = false;     // in ERR by a NAK of ours, which still has to leave
};

}  // namespace beeline::proto
