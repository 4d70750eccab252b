#include "proto/ops/receive_queue.h"

#include <algorithm>

#include "proto/ops/gather.h"

namespace beeline::proto {

ReceiveQueue::ReceiveQueue(const QpLimits& limits)
    : limits_(limits), ring_(limits.receive_depth), sges_(ring_.slots() * limits.receive_sges) {}

PostResult ReceiveQueue::post(const RecvWr& wr, std::size_t unpolled) {
  if (wr.sges.size() > limits_.receive_sges) return PostResult::too_many_sges;
  if (ring_.size() + unpolled >= limits_.receive_depth) return PostResult::queue_full;
  const std::size_t slot = ring_.slot(ring_.tail());
  const std::span<Sge> store = std::span(sges_).subspan(slot * limits_.receive_sges, wr.sges.size());
  std::copy(wr.sges.begin(), wr.sges.end(), store.begin());
  ring_.push() = {wr.wr_id, store, total_length(store)};
  return PostResult::ok;
}

}  // namespace beeline::proto
