#include "proto/shared_receive_queue.h"

#include <algorithm>

namespace beeline::proto {

SharedReceiveQueue::SharedReceiveQueue(std::uint32_t depth, std::uint32_t sges, LimitReached limit_reached,
                                       void* cookie)
    : depth_(depth),
      sges_per_request_(sges),
      ring_(depth),
      sges_(ring_.slots() * sges),
      limit_reached_(limit_reached),
      cookie_(cookie) {
  BEELINE_CHECK(sges <= max_sge);
}

PostResult SharedReceiveQueue::post(const RecvWr& request) {
  if (request.sges.size() > sges_per_request_) return PostResult::too_many_sges;
  const std::lock_guard lock(mutex_);
  if (ring_.size() >= depth_) return PostResult::queue_full;
  const std::size_t slot = ring_.slot(ring_.tail());
  std::copy(request.sges.begin(), request.sges.end(),
            sges_.begin() + static_cast<std::ptrdiff_t>(slot * sges_per_request_));
  ring_.push() = {request.wr_id, request.sges.size()};
  return PostResult::ok;
}

bool SharedReceiveQueue::take(std::uint64_t& wr_id, std::array<Sge, max_sge>& sges, std::size_t& sge_count) {
  const std::lock_guard lock(mutex_);
  const bool found = !ring_.empty();
  if (found) {
    const Request& request = ring_.front();
    wr_id = request.wr_id;
    sge_count = request.sge_count;
    const std::size_t slot = ring_.slot(ring_.head());
    std::copy_n(sges_.begin() + static_cast<std::ptrdiff_t>(slot * sges_per_request_), sge_count,
                sges.begin());
    ring_.pop();
  }
  if (ring_.size() < limit_) {
    limit_ = 0;
    if (limit_reached_ != nullptr) limit_reached_(cookie_);
  }
  return found;
}

bool SharedReceiveQueue::arm(std::uint32_t limit) {
  if (limit > depth_) return false;
  const std::lock_guard lock(mutex_);
  limit_ = limit;
  return true;
}

std::uint32_t SharedReceiveQueue::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

}  // namespace beeline::proto
