// A shared receive queue as the card sees it: the protocol's, and who is told that it runs low.
#pragma once

#include "nic/card.h"
#include "proto/shared_receive_queue.h"

namespace beeline::nic {

class SharedQueue {
 public:
  SharedQueue(PdId of, std::uint32_t depth, std::uint32_t sges, EventSink events, void* cookie)
      : domain(of), receives(depth, sges, limit_reached, this), events_(events), cookie_(cookie) {}
  SharedQueue(const SharedQueue&) = delete;
  SharedQueue& operator=(const SharedQueue&) = delete;

  const PdId domain;
  proto::SharedReceiveQueue receives;  // locks itself, below the queue pairs that take from it
  std::uint32_t users = 0;             // queue pairs; kept by the card

 private:
  static void limit_reached(void* self) {
    const auto& queue = *static_cast<SharedQueue*>(self);
    if (queue.events_ != nullptr) queue.events_(queue.cookie_, CardEvent::shared_queue_limit);
  }

  EventSink events_;
  void* cookie_;
};

}  // namespace beeline::nic
