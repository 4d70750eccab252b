// The engine: pumps packets between the port and the queue pairs, and completions to their queues.
//
// Who drives. There is one lock. Whoever polls, posts or wakes up tries it; who fails
// goes away, because the holder looks again after letting go: a request is pushed before the try,
// and looked for after the release, so one of the two sees it. Nobody waits for the
// engine but the control path (Exclusive) and an idle progress thread.
//
// Lock order: engine, queue pair, completion queue. The engine holds several queue pairs at once while a
// batch is sent, but waits for one only when it holds none; everybody else holds one at most.
#pragma once

#include <atomic>
#include <mutex>

#include "nic/inflight_budget.h"
#include "nic/management.h"
#include "nic/qpn_table.h"
#include "nic/request_stack.h"
#include "nic/run_queue.h"
#include "nic/rx.h"
#include "nic/timer_heap.h"
#include "nic/tx.h"

namespace beeline::nic {

class Engine {
 public:
  Engine(port::Port& port, RegionTable& regions);

  // There is a progress thread: acknowledgements may wait a moment for the program to answer, because the
  // thread sees to it that they leave if nobody polls any more. Before anything else.
  void rely_on_thread() { has_thread_ = true; }

  // Waits for the engine and keeps it: for whatever changes sockets or the set of queue pairs.
  class Exclusive {
   public:
    explicit Exclusive(Engine& engine) : engine_(engine), lock_(engine.mutex_) {}
    ~Exclusive() {
      const TimePoint next = engine_.next_deadline();
      lock_.unlock();
      engine_.remind_thread(next);
      engine_.serve_requests();
    }
    Exclusive(const Exclusive&) = delete;
    Exclusive& operator=(const Exclusive&) = delete;

    port::Port& port() { return engine_.port_; }
    Result<Qpn> draw_number() { return engine_.queue_pairs_.draw(); }
    void add(QueuePair& qp);
    void remove(QueuePair& qp);
    void set_inflight_bytes(std::size_t bytes) { engine_.budget_.set_total(bytes); }
    void set_management_agent(ManagementAgent* agent) { engine_.management_.set_agent(agent); }
    const CardCounters& counters() const { return engine_.counters_; }

   private:
    Engine& engine_;
    std::unique_lock<std::mutex> lock_;
  };

  // After a post or a modify, without any lock: sends what there is to send.
  void serve(QueuePair& qp);
  // The agent of queue pair 1 has something to send.
  void serve_management();
  // Somebody polls: one round, unless somebody else is at it. Whether anything came in.
  bool poll();
  // Somebody polls, but need not drive the engine now.
  void note_poll() {
    if (!polled_.load(std::memory_order_relaxed)) polled_.store(true, std::memory_order_relaxed);
  }
  // True once after somebody has polled.
  bool take_polled() { return polled_.exchange(false, std::memory_order_relaxed); }
  // True once after an acknowledgement was made to wait: should nobody poll any more, the progress thread
  // must see to it that it leaves.
  bool take_ack_held() { return ack_held_.exchange(false, std::memory_order_relaxed); }

  // The progress thread's round. Returns when it is needed next, of which others will remind it by
  // port.wake() if that becomes sooner; a time that has passed means at once. At the latest that is at
  // `other_deadline`, when something else needs it.
  TimePoint run_round(TimePoint other_deadline = TimePoint::never());
  // Something is due at this time.
  void remind_thread(TimePoint next);
  // The progress thread sleeps without listening: nobody need wake it.
  void stop_reminding() { thread_deadline_ns_.store(INT64_MIN); }

 private:
  static constexpr std::size_t receive_batch = 64;
  static constexpr int batches_per_round = 4;
  // More datagrams than receive buffers hold: what is still there after so many batches came later.
  static constexpr int drain_batches_max = 128;
  // How long to leave a full socket alone.
  static constexpr Duration no_room_pause = 50us;

  // An acknowledgement waits only while a program drives, which may answer a message at any moment.
  enum class Driver : std::uint8_t { program, thread };
  bool round(Driver driver, bool may_receive);
  bool receive(TimePoint now);
  bool drain_if_timers_are_due(bool more, TimePoint now);
  void expire_timers(TimePoint now);
  void pump_management(TimePoint now);
  void take_requests();
  void transmit(TimePoint now);
  bool give_turn(std::size_t quota, TimePoint now);
  void after_turn(QueuePair& qp, TimePoint now);
  void serve_requests();
  TimePoint next_deadline() const;

  port::Port& port_;
  std::mutex mutex_;
  // Under mutex_ from here …
  CardCounters counters_;
  Management management_;
  QpnTable queue_pairs_;
  Receiver receiver_;
  TxBatch batch_;
  RunQueue run_queue_;
  TimerHeap<QueuePair> timers_;
  InflightBudget budget_;
  TimePoint stalled_until_{};
  bool has_thread_ = false;
  Driver driver_ = Driver::program;
  std::array<port::InPacket, receive_batch> arrived_;
  // … to here.
  RequestStack requests_;
  std::atomic<bool> management_requested_{false};
  std::atomic<bool> polled_{false};
  std::atomic<bool> ack_held_{false};
  std::atomic<std::int64_t> thread_deadline_ns_{INT64_MIN};
};

}  // namespace beeline::nic
