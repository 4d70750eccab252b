// Receive requests that several queue pairs take from (IBTA vol. 1, 10.2.9). The one object of
// this folder that locks itself: queue pairs share it, and each has a lock of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "proto/ring.h"
#include "proto/types.h"

namespace beeline::proto {

class SharedReceiveQueue {
 public:
  // Called once when fewer than the armed limit are left, while the queue's lock is held: it
  // must not call back into the queue.
  using LimitReached = void (*)(void* cookie);

  SharedReceiveQueue(std::uint32_t depth, std::uint32_t sges, LimitReached limit_reached, void* cookie);

  PostResult post(const RecvWr& request);
  // Takes the oldest; its pieces are copied to `sges`. False when there is none.
  bool take(std::uint64_t& wr_id, std::array<Sge, max_sge>& sges, std::size_t& sge_count);
  // 0 disarms. At most the depth.
  bool arm(std::uint32_t limit);
  std::uint32_t limit() const;  // armed, or 0
  std::uint32_t depth() const { return depth_; }
  std::uint32_t sges() const { return sges_per_request_; }

 private:
  struct Request {
    std::uint64_t wr_id = 0;
    std::size_t sge_count = 0;
  };

  mutable std::mutex mutex_;
  const std::uint32_t depth_;
  const std::uint32_t sges_per_request_;
  Ring<Request> ring_;
  std::vector<Sge> sges_;  // sges_per_request_ for every slot of the ring
  std::uint32_t limit_ = 0;
  LimitReached limit_reached_;
  void* cookie_;
};

}  // namespace beeline::proto
