// Where the receive request of an incoming message comes from: the queue pair's own queue or a
// shared one.
#pragma once

#include <array>
#include <cstddef>

#include "proto/ops/completion_ring.h"
#include "proto/ops/receive_queue.h"
#include "proto/shared_receive_queue.h"
#include "proto/types.h"

namespace beeline::proto {

class ReceiveSource {
 public:
  // Completions of receives that the ring must have room for.
  static std::size_t completion_room(const QpSetup& setup);

  ReceiveSource(const QpSetup& setup, CompletionRing& completions);

  PostResult post(const RecvWr& wr);
  bool is_shared() const { return shared_ != nullptr; }

  // The request of the message that is coming in: the same one until it is completed, so that a
  // message that was broken off leaves it to the next. nullptr when there is none.
  const ReceiveRequest* hold() {
    if (shared_ != nullptr) return hold_shared();
    return own_.empty() ? nullptr : &own_.front();
  }
  // Completes the request that is held; wr_id, is_receive and qpn are filled in here.
  void complete(Completion& completion);

  // Ends all that is held or waits in the queue pair's own queue with WcStatus::flushed.
  void flush();
  void clear();

 private:
  const ReceiveRequest* hold_shared();

  ReceiveQueue own_;
  SharedReceiveQueue* shared_;
  CompletionRing& completions_;
  Qpn qpn_;
  std::size_t shared_room_;  // completions of shared receives that may wait to be polled
  bool holds_shared_ = false;
  ReceiveRequest shared_request_;
  std::array<Sge, max_sge> shared_sges_;
};

}  // namespace beeline::proto
