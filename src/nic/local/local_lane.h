// The local lane of a card: queue pairs whose peer belongs to a process of this host, of this user and in
// this network namespace exchange messages through memory that both share (proto/local/).
//
// Who drives. One lock, like the engine's: whoever polls or has something to be done tries it, and goes away
// if somebody else is at it, who looks again after letting go. Posting takes the lock of the queue pair only,
// and publishes by itself.
//
// Lock order: this lane, queue pair, completion queue. The engine's lock is never taken with this one held
// but by trying; whoever holds the engine's does not take this one.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/config.h"
#include "nic/engine.h"
#include "nic/local/direct_writes.h"
#include "nic/local/link.h"
#include "nic/local/shared_allocations.h"
#include "nic/queue_pair.h"

namespace beeline::nic::local {

// What a queue pair has of this lane, from the first ask on. Changes under the locks of lane and queue pair.
struct Attachment {
  SharedMemory rings;
  std::shared_ptr<Link> link;
  // While it asks.
  std::uint64_t ask_id = 0;
  TimePoint ask_again = TimePoint::never(), give_up = TimePoint::never();
  int refusals = 0;
  // Once it shares memory.
  bool active = false;
  bool more = false;  // to do at once
  DirectWrites direct;
  std::atomic<std::int64_t> due_ns{INT64_MAX};  // when it must be looked at, whether or not there is a hint
};

class LocalLane {
 public:
  // Takes the name "@beeline.local.<slot>".
  static Result<std::unique_ptr<LocalLane>> create(port::Slot slot, Lane rule, Engine& engine,
                                                   port::Port& port, SharedAllocations& allocations);
  ~LocalLane();
  LocalLane(const LocalLane&) = delete;
  LocalLane& operator=(const LocalLane&) = delete;

  proto::LaneRule rule() const { return rule_; }

  void add(QueuePair& qp);
  void remove(QueuePair& qp);
  // Keeps everybody else away: for a RESET.
  [[nodiscard]] std::unique_lock<std::mutex> hold() { return std::unique_lock(mutex_); }
  // The queue pair is in RESET: under hold() and its own lock.
  void detach(QueuePair& qp);

  // Work requests of this queue pair wait for a lane.
  void request(QueuePair& qp);
  // Call it under the queue pair's lock after its protocol has been called: completions are delivered, and
  // the peer is told what is new.
  void settle(QueuePair& qp, TimePoint now);
  // Something may be done at once.
  void serve();

  // Executes a WRITE at once, if that can be done by stores into the peer's memory. Under the queue pair's
  // lock, instead of posting it.
  bool write_directly(QueuePair& qp, const proto::SendWr& request, RegionTable& regions);
  // Stores the bytes of a long WRITE there before it is posted, if that can be done. Likewise.
  bool place(QueuePair& qp, const proto::SendWr& request, RegionTable& regions);
  // A WRITE was posted: asks for the region, if it is one that might be written to directly. Likewise.
  void want(QueuePair& qp, const proto::SendWr& request);
  // A region is gone or has changed: nobody writes there directly when this returns.
  void revoke(Key key);

  // Whether queue pairs use this lane, or want to; and whether poll() is worth it.
  bool is_active() const { return users_.load(std::memory_order_relaxed) != 0; }
  bool wants_polls() const { return is_active() || !thread_has_links_; }
  void poll();

  // The progress thread's round; returns when it is needed next.
  TimePoint run_round();
  TimePoint next_deadline() const;
  // From here on peers wake this process. False if there is something to do already.
  bool prepare_to_sleep();
  void wake_up();
  // There is a thread that looks after the connections.
  void leave_links_to_thread() { thread_has_links_ = true; }

  // Of all queue pairs that ever were.
  proto::LocalBytes payload();
  struct Peers {
    int processes = 0, direct = 0;  // of which so many can be copied from directly
  };
  Peers peers();

  void abandon_after_fork();

 private:
  static constexpr std::size_t links_max = 512;
  static constexpr int messages_per_look = 16;

  LocalLane(port::Slot slot, Lane rule, Engine& engine, port::Port& port, SharedAllocations& allocations,
            Descriptor listener, Descriptor epoll);

  // local_lane.cc: rounds
  bool round(bool links_too);
  bool step(QueuePair& qp, TimePoint now);
  void serve_what_came(QueuePair& qp);
  void run_timers(TimePoint now);

  // asking.cc: which lane a queue pair takes
  void take_requests(TimePoint now);
  void choose(QueuePair& qp, TimePoint now);
  void ask(QueuePair& qp, TimePoint now);
  void ask_again(QueuePair& qp, TimePoint now);
  // `failure`: what becomes of the requests where the wire is not allowed.
  void take_wire(QueuePair& qp, proto::WcStatus failure, TimePoint now);
  void activate(QueuePair& qp, int side, TimePoint now);
  void handle(const std::shared_ptr<Link>& link, Link::Received& received, TimePoint now);
  Verdict judge(const std::shared_ptr<Link>& link, const Message& ask, Descriptor rings, TimePoint now);
  void handle_answer(const Message& answer, TimePoint now);

  // direct.cc: WRITEs past the ring
  bool execute(QueuePair& qp, const proto::SendWr& request, std::byte* to, RegionTable& regions);
  void handle_want(const std::shared_ptr<Link>& link, const Message& want);
  void handle_grant(const std::shared_ptr<Link>& link, const Message& grant, Descriptor file);
  QueuePair* find_joined(const std::shared_ptr<Link>& link, const Message& message);

  // links.cc: connections
  std::shared_ptr<Link> link_to(std::uint8_t slot);
  bool watch(const std::shared_ptr<Link>& link);
  void look_at_links(TimePoint now);
  void accept_links();
  bool read_link(const std::shared_ptr<Link>& link, TimePoint now);
  void lose(const std::shared_ptr<Link>& link, TimePoint now);

  const port::Slot slot_;
  const proto::LaneRule rule_;
  Engine& engine_;
  port::Port& port_;
  SharedAllocations& allocations_;
  std::mutex mutex_;
  // Under mutex_ from here …
  Descriptor listener_, epoll_;
  std::unique_ptr<std::uint64_t> witness_;
  std::unordered_map<std::uint32_t, std::shared_ptr<Link>> links_;  // by what epoll calls them
  std::unordered_map<std::uint8_t, std::uint32_t> links_by_slot_;   // those that we opened
  std::uint32_t next_link_ = 1;
  std::unordered_map<std::uint32_t, QueuePair*> queue_pairs_;  // RC, by number
  std::unordered_map<std::uint64_t, QueuePair*> asks_;
  std::vector<QueuePair*> attached_;  // that ask or share memory
  proto::LocalBytes gone_;            // of queue pairs that are no more
  unsigned polls_ = 0, rounds_ = 0;
  bool more_ = false;
  // … to here.
  std::mutex requests_mutex_;
  std::vector<QueuePair*> requests_;
  std::atomic<bool> poked_{false};
  std::atomic<int> users_{0};
  bool thread_has_links_ = false;
};

}  // namespace beeline::nic::local
