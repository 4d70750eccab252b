// Queue pairs that somebody wants the engine to look at. Anybody pushes, without a lock; whoever
// holds the engine takes them all. Each is in here at most once, so it is bounded.
#pragma once

#include <atomic>

#include "nic/queue_pair.h"

namespace beeline::nic {

class RequestStack {
 public:
  void push(QueuePair& qp) {
    if (qp.requested.exchange(true)) return;
    QueuePair* head = head_.load(std::memory_order_relaxed);
    do qp.next_requested = head;
    while (!head_.compare_exchange_weak(head, &qp));
  }
  bool empty() const { return head_.load() == nullptr; }

  // Hands each to `take`, the oldest first.
  template <class Take>
  void take_all(Take&& take) {
    QueuePair* oldest = nullptr;
    for (QueuePair* qp = head_.exchange(nullptr); qp != nullptr;) {
      QueuePair* next = qp->next_requested;
      qp->next_requested = oldest;
      oldest = qp;
      qp = next;
    }
    while (oldest != nullptr) {
      QueuePair* qp = oldest;
      oldest = oldest->next_requested;
      qp->requested.store(false);  // from here on a new request comes in anew
      take(*qp);
    }
  }

 private:
  std::atomic<QueuePair*> head_{nullptr};
};

}  // namespace beeline::nic
