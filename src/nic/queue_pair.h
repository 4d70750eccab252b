// A queue pair as the card sees it: the protocol's, its peer, its completion queues, and what the
// engine remembers of it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "nic/brief_lock.h"
#include "nic/card.h"
#include "nic/completion_queue.h"
#include "nic/timer_heap.h"

namespace beeline::nic {

namespace local {
struct Attachment;
}

// Where packets of a queue pair go, and where they must come from.
struct Route {
  bool known = false;
  IpAddress local;
  IpAddress remote;
  std::uint16_t source_port = 0;
};

class QueuePair {
 public:
  QueuePair(const proto::QpSetup& setup, const QpRequest& request, const std::vector<Gid>& own_addresses)
      : qpn(setup.qpn),
        device(request.device),
        domain(request.domain),
        send_cq(request.send_cq),
        receive_cq(request.receive_cq),
        shared_queue(request.shared_queue),
        type(request.type),
        addresses(own_addresses),
        events(request.events),
        cookie(request.cookie),
        protocol(setup) {}

  const Qpn qpn;
  const int device;
  const PdId domain;
  CompletionQueue* const send_cq;
  CompletionQueue* const receive_cq;
  SharedQueue* const shared_queue;
  const proto::QpType type;
  const std::vector<Gid>& addresses;  // its device's: where datagrams may come to; under the engine's lock
  const EventSink events;
  void* const cookie;

  // Guards these four. Locks are taken in the order engine, queue pair, completion queue;
  // a thread that posts takes this one alone.
  BriefLock mutex;
  proto::QueuePair protocol;
  Route route;
  AddressVector address;
  std::shared_ptr<local::Attachment> local;  // once it asks for the local lane (local/local_lane.h)

  // Anybody may ask the engine to look at this queue pair (request_stack.h).
  std::atomic<bool> requested{false};
  QueuePair* next_requested = nullptr;

  // The engine's, under its lock.
  bool scheduled = false;
  TimePoint timer = TimePoint::never();
  std::size_t timer_place = TimerHeap<QueuePair>::nowhere;
  bool sends_payload = false;  // recently: it shares the in-flight budget
  TimePoint last_payload{};
};

// Moves completions to where they belong. A completion queue that overruns takes the queue pair
// to ERR (IBTA vol. 1, 11.6.3.1). The caller holds qp.mutex.
void deliver_completions(QueuePair& qp, TimePoint now);

// Tells whoever listens what happened beside completions; under the locks of the engine and of the queue
// pair, so that nothing is said of one that is destroyed. Needs both.
void deliver_events(QueuePair& qp);

}  // namespace beeline::nic
