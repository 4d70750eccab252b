// The thread that drives the engine when nobody else does: remote READs and WRITEs, acknowledgements and
// retransmissions need no help from the application.
//
//   somebody polls    it only ticks slowly, and does not listen: a datagram wakes the poller's loop
//   somebody waits    (an armed completion queue) it listens
//   nobody does       it listens; without traffic and timers it sleeps for ever
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "nic/engine.h"
#include "nic/local/local_lane.h"

namespace beeline::nic {

class ProgressThread {
 public:
  // `armed_queues`: how many completion queues are armed.
  // `lane` may be nullptr. `follow_interfaces` is called, on the thread, when links or addresses may have
  // changed.
  ProgressThread(Engine& engine, port::Port& port, local::LocalLane* lane,
                 const std::atomic<int>& armed_queues, std::function<void()> follow_interfaces);
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // A completion queue was armed: listen, if it only ticked.
  void listen();
  // In the child of a fork there is no such thread any more, and nothing to join.
  void abandon_after_fork();

 private:
  void run();
  void tick();
  void sleep(TimePoint until);
  void look_at_interfaces(bool ticked);

  Engine& engine_;
  port::Port& port_;
  local::LocalLane* const lane_;
  const std::atomic<int>& armed_queues_;
  const std::function<void()> follow_interfaces_;
  int ticks_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> ticking_{false};
  std::mutex mutex_;
  std::condition_variable nudged_;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace beeline::nic
