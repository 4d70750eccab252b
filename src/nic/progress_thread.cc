#include "nic/progress_thread.h"

#include <pthread.h>

#include <csignal>

namespace beeline::nic {
namespace {

constexpr Duration tick_interval = 1ms;
// No peer repeats what it has sent before twice that (proto/reliability/retransmit_timer.h).
constexpr Duration tick_interval_with_acks = 400us;
constexpr int ticks_per_look = 64;  // at the interfaces

// Signals are the application's: its handlers run on its own threads. Faults cannot be blocked, and ours
// must reach the fault handlers.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    ::sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
      ::sigdelset(&all, fault);
    ::pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

ProgressThread::ProgressThread(Engine& engine, port::Port& port, local::LocalLane* lane,
                               const std::atomic<int>& armed_queues, std::function<void()> follow_interfaces)
    : engine_(engine),
      port_(port),
      lane_(lane),
      armed_queues_(armed_queues),
      follow_interfaces_(std::move(follow_interfaces)) {
  if (lane_ != nullptr) lane_->leave_links_to_thread();
  const BlockedSignals blocked;  // the thread inherits the mask
  thread_ = std::make_unique<std::thread>([this] { run(); });
  ::pthread_setname_np(thread_->native_handle(), "beeline");
}

ProgressThread::~ProgressThread() {
  if (thread_ == nullptr) return;
  stopping_.store(true);
  port_.wake();
  listen();
  thread_->join();
}

void ProgressThread::run() {
  while (!stopping_.load()) {
    const TimePoint lane_next = lane_ != nullptr ? lane_->run_round() : TimePoint::never();
    const TimePoint next = engine_.run_round(lane_next);
    if (next <= port_.now()) continue;
    const bool ticks = engine_.take_polled() && armed_queues_.load() == 0;
    if (ticks)
      tick();
    else
      sleep(next);
    look_at_interfaces(ticks);
  }
}

// The kernel wakes whoever sleeps; a tick has to ask, and does so now and then.
void ProgressThread::look_at_interfaces(bool ticked) {
  const bool look = ticked && ++ticks_ % ticks_per_look == 0;
  if (port_.take_interface_change(look)) follow_interfaces_();
}

void ProgressThread::sleep(TimePoint until) {
  if (lane_ == nullptr) return port_.wait(until);
  if (!lane_->prepare_to_sleep()) return;
  port_.wait(until);
  lane_->wake_up();
}

void ProgressThread::tick() {
  engine_.stop_reminding();
  std::unique_lock lock(mutex_);
  ticking_.store(true);
  // Whoever arms a queue counts it first and looks at ticking_ then; here it is the other way round.
  const Duration interval = engine_.take_ack_held() ? tick_interval_with_acks : tick_interval;
  if (armed_queues_.load() == 0 && !stopping_.load()) nudged_.wait_for(lock, interval);
  ticking_.store(false);
}

void ProgressThread::listen() {
  if (!ticking_.load()) return;
  const std::lock_guard lock(mutex_);
  nudged_.notify_one();
}

// The object of a thread that exists in the parent only can neither be joined nor destroyed: it is left.
void ProgressThread::abandon_after_fork() { (void)thread_.release(); }

}  // namespace beeline::nic
