#include "nic/engine.h"

#include <algorithm>

namespace beeline::nic {

Engine::Engine(port::Port& port, RegionTable& regions)
    : port_(port),
      management_(port, counters_),
      queue_pairs_(port.slot()),
      receiver_(queue_pairs_, management_, counters_),
      batch_(port, regions, counters_) {}

void Engine::Exclusive::add(QueuePair& qp) {
  engine_.queue_pairs_.insert(qp.qpn, &qp);
  const std::size_t queue_pairs = engine_.queue_pairs_.size();
  engine_.run_queue_.reserve(queue_pairs);
  engine_.timers_.reserve(queue_pairs);
  engine_.budget_.reserve(queue_pairs);
}

void Engine::Exclusive::remove(QueuePair& qp) {
  engine_.take_requests();
  engine_.run_queue_.remove(qp);
  engine_.timers_.remove(qp);
  engine_.budget_.forget(qp);
  engine_.queue_pairs_.erase(qp.qpn);
}

void Engine::serve(QueuePair& qp) {
  requests_.push(qp);
  serve_requests();
}

void Engine::serve_management() {
  management_requested_.store(true);
  serve_requests();
}

void Engine::serve_requests() {
  while ((!requests_.empty() || management_requested_.load()) && mutex_.try_lock()) {
    round(Driver::program, false);
    const TimePoint next = next_deadline();
    mutex_.unlock();
    remind_thread(next);
  }
}

bool Engine::poll() {
  note_poll();  // looks first: that keeps the cache line shared between pollers
  if (!mutex_.try_lock()) return false;
  const bool more = round(Driver::program, true);
  const TimePoint next = next_deadline();
  mutex_.unlock();
  remind_thread(next);
  serve_requests();
  return more;
}

TimePoint Engine::run_round(TimePoint other_deadline) {
  TimePoint next;
  {
    const std::lock_guard lock(mutex_);
    const bool more = round(Driver::thread, true);
    next = more ? TimePoint{} : std::min(next_deadline(), other_deadline);
    thread_deadline_ns_.store(next.ns);
  }
  return requests_.empty() && !management_requested_.load() ? next : TimePoint{};
}

// Whoever makes something due before the progress thread wakes up by itself tells it, once.
void Engine::remind_thread(TimePoint next) {
  std::int64_t deadline = thread_deadline_ns_.load();
  if (next.ns < deadline && thread_deadline_ns_.compare_exchange_strong(deadline, INT64_MIN)) port_.wake();
}

TimePoint Engine::next_deadline() const {
  const TimePoint next = std::min(timers_.soonest(), management_.deadline());
  return run_queue_.empty() ? next : std::min(stalled_until_, next);
}

// True when there may be more to receive, or to send at once.
bool Engine::round(Driver driver, bool may_receive) {
  driver_ = driver;
  const TimePoint now = port_.now();
  bool more = may_receive && receive(now);
  if (may_receive) {
    more = drain_if_timers_are_due(more, now);
    expire_timers(now);
  }
  take_requests();
  pump_management(now);
  transmit(now);
  return more || (!run_queue_.empty() && now >= stalled_until_);
}

bool Engine::receive(TimePoint now) {
  const std::size_t n = port_.receive(arrived_);
  receiver_.take_all(std::span(arrived_).first(n), now, [this](QueuePair& qp) { run_queue_.push(qp); });
  return n > 0;
}

// The answer that a timer waits for may have come in time and lie in the socket since, because this
// process did not run: repeating the question then helps nobody. So timers expire only when
// everything that came before has been looked at. True when there may be more to receive.
bool Engine::drain_if_timers_are_due(bool more, TimePoint now) {
  if (timers_.soonest() > now) return more;
  for (int batches = 0; more && batches < drain_batches_max; ++batches) more = receive(now);
  return more;
}

// Each at most once a round, whatever its protocol says next: its timer is set anew after its turn.
void Engine::expire_timers(TimePoint now) {
  while (timers_.soonest() <= now && timers_.top() != nullptr) {
    QueuePair& qp = *timers_.top();
    timers_.remove(qp);
    const std::lock_guard lock(qp.mutex);
    const std::uint64_t answers_missed = qp.protocol.counters().timeouts;
    qp.protocol.handle_timeout(now);
    if (qp.protocol.counters().timeouts != answers_missed) port_.note_silence();
    run_queue_.push(qp);
  }
}

void Engine::pump_management(TimePoint now) {
  const bool requested =
      management_requested_.load(std::memory_order_relaxed) && management_requested_.exchange(false);
  if (requested || management_.deadline() <= now) management_.pump(now);
}

void Engine::take_requests() {
  requests_.take_all([this](QueuePair& qp) { run_queue_.push(qp); });
}

void Engine::transmit(TimePoint now) {
  if (now < stalled_until_) return;
  for (int batches = 0; batches < batches_per_round && !run_queue_.empty(); ++batches) {
    const std::size_t turns = run_queue_.size();
    const std::size_t quota = std::max<std::size_t>(8, TxBatch::max_packets / turns);
    for (std::size_t i = 0; i < turns && batch_.room() > 0; ++i)
      if (!give_turn(quota, now)) break;
    if (!batch_.flush(now, [&](QueuePair& qp) { after_turn(qp, now); })) {
      stalled_until_ = now + no_room_pause;
      return;
    }
  }
}

// False when the batch must go out first, because somebody else uses the next queue pair.
bool Engine::give_turn(std::size_t quota, TimePoint now) {
  QueuePair& qp = run_queue_.pop();
  std::unique_lock lock(qp.mutex, std::try_to_lock);
  if (!lock) {
    if (!batch_.empty()) {
      run_queue_.push(qp);
      return false;
    }
    lock.lock();
  }
  // Completions first: their readers need not wait for our acknowledgements to leave.
  deliver_completions(qp, now);
  qp.protocol.set_window(budget_.window_of(qp));
  qp.protocol.allow_ack_hold(has_thread_ && driver_ == Driver::program);
  std::size_t payload_bytes = 0;
  if (batch_.add(qp, lock, quota, now, payload_bytes)) {
    if (payload_bytes > 0) budget_.note_payload(qp, now);
  } else {
    after_turn(qp, now);
  }
  return true;
}

void Engine::after_turn(QueuePair& qp, TimePoint now) {
  deliver_completions(qp, now);
  deliver_events(qp);
  timers_.set(qp, qp.protocol.next_timeout());
  if (qp.protocol.holds_ack(now) && !ack_held_.load(std::memory_order_relaxed))
    ack_held_.store(true, std::memory_order_relaxed);
  if (qp.protocol.wants_transmit(now)) run_queue_.push(qp);
}

}  // namespace beeline::nic
