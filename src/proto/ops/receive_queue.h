// The receive queue: buffers that wait for messages, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/queue_pair.h"
#include "proto/ring.h"
#include "proto/types.h"

namespace beeline::proto {

struct ReceiveRequest {
  std::uint64_t wr_id = 0;
  std::span<const Sge> sges;  // into the queue's own store
  std::uint64_t length = 0;   // room in all pieces
};

class ReceiveQueue {
 public:
  explicit ReceiveQueue(const QpLimits& limits);

  // `unpolled`: completions of this queue that still occupy places.
  PostResult post(const RecvWr& wr, std::size_t unpolled);

  bool empty() const { return ring_.empty(); }
  const ReceiveRequest& front() const { return ring_.front(); }
  void pop() { ring_.pop(); }
  void clear() { ring_.clear(); }

 private:
  QpLimits limits_;
  Ring<ReceiveRequest> ring_;
  std::vector<Sge> sges_;  // limits_.receive_sges for every slot
};

}  // namespace beeline::proto
