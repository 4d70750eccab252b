#include "nic/local/local_lane.h"

#include <algorithm>

#include "base/random.h"

namespace beeline::nic::local {

LocalLane::LocalLane(port::Slot slot, Lane rule, Engine& engine, port::Port& port,
                     SharedAllocations& allocations, Descriptor listener, Descriptor epoll)
    : slot_(slot),
      rule_(rule == Lane::local ? proto::LaneRule::local : proto::LaneRule::automatic),
      engine_(engine),
      port_(port),
      allocations_(allocations),
      listener_(std::move(listener)),
      epoll_(std::move(epoll)),
      witness_(std::make_unique<std::uint64_t>(secure_random())) {}

LocalLane::~LocalLane() = default;

void LocalLane::add(QueuePair& qp) {
  if (qp.type != proto::QpType::rc) return;
  const std::lock_guard lock(mutex_);
  queue_pairs_.emplace(qp.qpn.value, &qp);
}

// What the peer had put into the ring is executed, as what a card has received would be.
void LocalLane::serve_what_came(QueuePair& qp) {
  constexpr int steps = 4;  // enough for a ring full of small messages
  bool more = true;
  for (int i = 0; more && i < steps; ++i) more = qp.protocol.step_local(port_.now()).more;
  settle(qp, port_.now());
}

void LocalLane::remove(QueuePair& qp) {
  {
    const std::lock_guard lock(requests_mutex_);
    std::erase(requests_, &qp);
  }
  const std::lock_guard lock(mutex_);
  const std::lock_guard inner(qp.mutex);
  if (queue_pairs_.erase(qp.qpn.value) == 0) return;
  if (qp.local != nullptr && qp.local->active) serve_what_came(qp);
  detach(qp);
  gone_ += qp.protocol.local_bytes();
}

void LocalLane::detach(QueuePair& qp) {
  if (qp.local == nullptr) return;
  qp.local->direct.revoke();
  qp.protocol.leave_local();
  Attachment& attachment = *qp.local;
  asks_.erase(attachment.ask_id);
  // Whoever accepts the ask later finds it closed.
  if (!attachment.active && attachment.rings)
    static_cast<proto::local::SharedPair*>(attachment.rings.data())->sides[0].closed.store(1);
  if (attachment.active) attachment.link->wake_peer();
  qp.local.reset();
  std::erase(attached_, &qp);
  users_.fetch_sub(1);
}

// --- Rounds

void LocalLane::settle(QueuePair& qp, TimePoint now) {
  if (qp.local == nullptr || !qp.local->active) return;
  if (qp.protocol.state() == proto::QpState::err) qp.local->direct.revoke();
  deliver_completions(qp, now);
  if (qp.protocol.take_published()) qp.local->link->wake_peer();
  const std::int64_t due = qp.protocol.next_local_timeout().ns;
  if (due == qp.local->due_ns.load(std::memory_order_relaxed)) return;
  qp.local->due_ns.store(due, std::memory_order_relaxed);
  engine_.remind_thread({due});
}

void LocalLane::serve() {
  poked_.store(true);
  while (poked_.load() && mutex_.try_lock()) {
    const bool more = round(false);
    mutex_.unlock();
    if (more) engine_.remind_thread({});
  }
}

void LocalLane::poll() {
  if (!mutex_.try_lock()) return;
  // The thread looks after the connections; but who asks wants to know soon.
  const bool links_too = (!thread_has_links_ && ++polls_ % 64 == 0) || !asks_.empty();
  const bool more = round(links_too);
  mutex_.unlock();
  if (more) engine_.remind_thread({});
  if (poked_.load(std::memory_order_relaxed)) serve();
}

TimePoint LocalLane::run_round() {
  const std::lock_guard lock(mutex_);
  return round(true) ? TimePoint{} : next_deadline();
}

// True when there is more to do at once.
bool LocalLane::round(bool links_too) {
  const bool poked = poked_.load(std::memory_order_relaxed) && poked_.exchange(false);
  if (links_too) look_at_links(port_.now());
  if (poked) take_requests(port_.now());
  more_ = false;
  TimePoint now{};
  for (std::size_t i = 0; i < attached_.size(); ++i) {
    QueuePair& qp = *attached_[i];
    Attachment& attachment = *qp.local;
    if (!attachment.active || (!attachment.more && !qp.protocol.has_local_work())) continue;
    if (now == TimePoint{}) now = port_.now();
    more_ |= step(qp, now);
  }
  if (links_too || ++rounds_ % 16 == 0) run_timers(now == TimePoint{} ? port_.now() : now);
  return more_;
}

bool LocalLane::step(QueuePair& qp, TimePoint now) {
  const std::lock_guard lock(qp.mutex);
  const proto::QueuePair::Step step = qp.protocol.step_local(now);
  if (step.published) qp.local->link->wake_peer();
  settle(qp, now);
  deliver_events(qp);
  qp.local->more = step.more;
  return step.more;
}

void LocalLane::run_timers(TimePoint now) {
  for (std::size_t i = 0; i < attached_.size(); ++i) {
    QueuePair& qp = *attached_[i];
    Attachment& attachment = *qp.local;
    if (attachment.active) {
      if (attachment.due_ns.load(std::memory_order_relaxed) <= now.ns) more_ |= step(qp, now);
    } else if (attachment.ask_again <= now || attachment.give_up <= now) {
      ask_again(qp, now);
    }
  }
}

TimePoint LocalLane::next_deadline() const {
  TimePoint next = TimePoint::never();
  for (const QueuePair* qp : attached_) {
    const Attachment& attachment = *qp->local;
    if (attachment.active)
      next = std::min(next, TimePoint{attachment.due_ns.load(std::memory_order_relaxed)});
    else
      next = std::min({next, attachment.ask_again, attachment.give_up});
  }
  return next;
}

// Peers look at the flag after they have published something, we at what is published after raising the flag:
// one of the two sees it.
bool LocalLane::prepare_to_sleep() {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, link] : links_) link->set_sleeping(true);
  bool work = poked_.load();
  for (const QueuePair* qp : attached_)
    work |= qp->local->active && (qp->local->more || qp->protocol.has_local_work());
  if (!work) return true;
  for (const auto& [id, link] : links_) link->set_sleeping(false);
  return false;
}

void LocalLane::wake_up() {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, link] : links_) link->set_sleeping(false);
}

proto::LocalBytes LocalLane::payload() {
  const std::lock_guard lock(mutex_);
  proto::LocalBytes sum = gone_;
  for (const auto& [number, qp] : queue_pairs_) {
    const std::lock_guard inner(qp->mutex);
    sum += qp->protocol.local_bytes();
  }
  return sum;
}

LocalLane::Peers LocalLane::peers() {
  const std::lock_guard lock(mutex_);
  Peers peers;
  for (const auto& [id, link] : links_) {
    ++peers.processes;
    const auto reach = link->is_open() ? link->reach() : proto::local::Reach{};
    peers.direct += reach.peer_reads_ours && reach.we_read_peers ? 1 : 0;
  }
  return peers;
}

// Locks may be held by threads that the child does not have: nothing here takes one.
void LocalLane::abandon_after_fork() {
  listener_.reset();
  epoll_.reset();
  for (const auto& [id, link] : links_) link->abandon();
  for (QueuePair* qp : attached_) {
    qp->local->rings.abandon();
    qp->local->direct.abandon_after_fork();
  }
}

}  // namespace beeline::nic::local
