// How a receive request ends that cannot take its message. The peer of an unreliable queue pair learns
// nothing.
#pragma once

#include "proto/ops/operations.h"

namespace beeline::proto {

inline void fail_held_receive(Operations& operations, WcStatus status) {
  Completion completion;
  completion.status = status;
  completion.opcode = WcOpcode::receive;
  operations.receives().complete(completion);
}

// The message is longer than the request: an own request waits for a message that fits. One from a shared
// queue cannot go back there, and ends with an error; the queue pair lives on (as Linux's rdma_rxe has it).
inline void fail_too_long(Operations& operations) {
  if (operations.receives().is_shared()) fail_held_receive(operations, WcStatus::local_length_error);
}

// The request's own memory is at fault: an error of this side, which stops the queue pair.
inline void fail_unreachable(Operations& operations) {
  fail_held_receive(operations, WcStatus::local_protection_error);
  operations.enter_error();
}

}  // namespace beeline::proto
