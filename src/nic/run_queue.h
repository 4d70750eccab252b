// Queue pairs whose turn comes: first in, first out, each at most once.
#pragma once

#include <cstddef>
#include <vector>

#include "nic/queue_pair.h"

namespace beeline::nic {

class RunQueue {
 public:
  // So that push() never runs out of places: called before the queue pairs exist.
  void reserve(std::size_t queue_pairs) {
    if (queue_pairs <= ring_.size()) return;
    std::vector<QueuePair*> larger(queue_pairs * 2);
    for (std::size_t i = 0; i < count_; ++i) larger[i] = ring_[(head_ + i) % ring_.size()];
    ring_ = std::move(larger);
    head_ = 0;
  }
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }

  void push(QueuePair& qp) {
    if (qp.scheduled) return;
    qp.scheduled = true;
    ring_[(head_ + count_++) % ring_.size()] = &qp;
  }
  QueuePair& pop() {
    QueuePair& qp = *ring_[head_];
    head_ = (head_ + 1) % ring_.size();
    --count_;
    qp.scheduled = false;
    return qp;
  }
  void remove(QueuePair& qp) {
    for (std::size_t left = qp.scheduled ? count_ : 0; left > 0; --left)
      if (QueuePair& other = pop(); &other != &qp) push(other);
  }

 private:
  std::vector<QueuePair*> ring_;
  std::size_t head_ = 0, count_ = 0;
};

}  // namespace beeline::nic
