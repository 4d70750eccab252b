// The half of a queue pair that no lane may change: state, queues, the responder's rules,
// completion order, flushing. A lane (reliability/ for packets, direct_lane.h for memory)
// moves the operations between two of these.
#pragma once

#include <cstdint>
#include <utility>

#include "base/result.h"
#include "proto/ops/completion_ring.h"
#include "proto/ops/executor.h"
#include "proto/ops/receive_source.h"
#include "proto/ops/send_queue.h"
#include "proto/queue_pair.h"
#include "proto/types.h"

namespace beeline::proto {

// The status of a send request that was refused with this code.
constexpr WcStatus status_of(wire::NakCode code) {
  switch (code) {
    case wire::NakCode::psn_sequence:
      return WcStatus::retry_exceeded;
    case wire::NakCode::invalid_request:
      return WcStatus::remote_invalid_request;
    case wire::NakCode::remote_access:
      return WcStatus::remote_access_error;
    case wire::NakCode::remote_operation:
      return WcStatus::remote_operation_error;
  }
  return WcStatus::remote_operation_error;
}

class Operations {
 public:
  explicit Operations(const QpSetup& setup);
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  // Applies a checked transition: entering ERR flushes, entering RESET clears.
  Result<void> modify(const QpAttr& attributes, std::uint32_t mask);
  QpState state() const { return attributes_.state; }
  const QpAttr& attributes() const { return attributes_; }
  bool can_receive() const { return state() >= QpState::rtr && state() <= QpState::sqe; }
  // Whether what has begun goes on, and whether anything new may begin.
  bool can_send() const { return state() == QpState::rts || state() == QpState::sqd; }
  bool may_begin() const { return state() == QpState::rts; }

  PostResult post_send(const SendWr& wr);
  PostResult post_recv(const RecvWr& wr);

  const SendQueue& sends() const { return sends_; }
  Executor& executor() { return executor_; }
  ReceiveSource& receives() { return receives_; }
  CompletionRing& completions() { return completions_; }
  const CompletionRing& completions() const { return completions_; }
  Memory& memory() { return memory_; }
  PdId domain() const { return domain_; }
  Qpn qpn() const { return qpn_; }
  QpType type() const { return type_; }
  const QpLimits& limits() const { return limits_; }

  // Whether a send request can be carried out as far as this side goes; success if so.
  WcStatus check_send(const SendRequest& request);
  // The oldest send request is done: one completion if it is signalled.
  void complete_send();
  // The oldest send request failed: one completion in any case, then RC is in ERR; of UC and UD the
  // send queue alone is flushed, and is in SQE (IBTA vol. 1, 10.3.1.7).
  void fail_send(WcStatus status);
  // The oldest send request, which is local (send_queue.h), is carried out and completed, or fails.
  void run_local();
  // Flushes both queues; the queue pair is in ERR afterwards.
  void enter_error();
  // A request of the peer was refused: ERR, and an event unless a completion tells of it.
  void refuse(const Verdict& nak);

  // The lane says so: a request of the peer came; in SQD, nothing that has begun is left.
  void note_request() {
    if (state() == QpState::rtr) note_established();
  }
  void note_idle();
  QpEvent take_events() { return std::exchange(events_, QpEvent::none); }

 private:
  void note(QpEvent event) { events_ = events_ | event; }
  void note_established();
  void flush_sends();
  void flush();
  void clear();

  Memory& memory_;
  PdId domain_;
  Qpn qpn_;
  QpType type_;
  QpLimits limits_;
  QpAttr attributes_;
  SendQueue sends_;
  CompletionRing completions_;
  ReceiveSource receives_;
  Executor executor_;
  QpEvent events_ = QpEvent::none;
  bool established_ = false;  // and reported
};

}  // namespace beeline::proto
