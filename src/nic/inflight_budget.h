// How many unacknowledged bytes each queue pair may have on the wire. The receive buffers of a
// process are shared by all its queue pairs, so the budget is one per process, divided over those
// that have sent payload lately.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "nic/queue_pair.h"

namespace beeline::nic {

class InflightBudget {
 public:
  void set_total(std::size_t bytes) { total_ = bytes; }
  void reserve(std::size_t queue_pairs) { senders_.reserve(queue_pairs); }

  std::uint32_t window_of(const QueuePair& qp) const {
    const std::size_t sharers = std::max<std::size_t>(1, senders_.size() + (qp.sends_payload ? 0 : 1));
    return static_cast<std::uint32_t>(std::clamp<std::size_t>(total_ / sharers, min_window, max_window));
  }

  void note_payload(QueuePair& qp, TimePoint now) {
    qp.last_payload = now;
    if (!qp.sends_payload) senders_.push_back(&qp);
    qp.sends_payload = true;
    if (now - last_sweep_ > idle_after) sweep(now);
  }
  void forget(QueuePair& qp) {
    std::erase(senders_, &qp);
    qp.sends_payload = false;
  }

 private:
  // Two packets of the largest path MTU: one on its way, one being acknowledged.
  static constexpr std::size_t min_window = 8192;
  static constexpr std::size_t max_window = 1u << 30;
  static constexpr Duration idle_after = 10ms;

  void sweep(TimePoint now) {
    last_sweep_ = now;
    std::erase_if(senders_, [&](QueuePair* qp) {
      qp->sends_payload = now - qp->last_payload <= idle_after;
      return !qp->sends_payload;
    });
  }

  std::size_t total_ = min_window;
  std::vector<QueuePair*> senders_;
  TimePoint last_sweep_{};
};

}  // namespace beeline::nic
