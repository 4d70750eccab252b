#include "nic/completion_queue.h"

#include <algorithm>

namespace beeline::nic {

CompletionQueue::CompletionQueue(std::uint32_t depth, Notifier notifier, void* cookie,
                                 std::atomic<int>& armed_queues, EventSink events)
    : ring_(depth), notifier_(notifier), events_(events), cookie_(cookie), armed_queues_(armed_queues) {}

CompletionQueue::~CompletionQueue() {
  if (bell_ != Bell::silent) armed_queues_.fetch_sub(1);
}

bool CompletionQueue::append(const proto::Completion& completion) {
  const std::size_t count = count_.load(std::memory_order_relaxed);
  if (overrun() || count == ring_.size()) {
    note_overrun();
    return false;
  }
  std::size_t place = head_ + count;
  if (place >= ring_.size()) place -= ring_.size();
  ring_[place] = completion;
  count_.store(count + 1, std::memory_order_release);
  return true;
}

void CompletionQueue::note_overrun() {
  if (overrun_.exchange(true, std::memory_order_acq_rel) || events_ == nullptr) return;
  events_(cookie_, CardEvent::completion_queue_error);
}

bool CompletionQueue::push(std::span<const proto::Completion> completions) {
  const std::lock_guard lock(mutex_);
  bool solicited = false;
  for (const auto& completion : completions) {
    // An overrun wakes everybody: no completion will.
    solicited |= !append(completion) || completion.solicited || completion.status != proto::WcStatus::success;
  }
  if (!completions.empty()) ring_for(solicited);
  return !overrun();
}

// Under the lock, so that no bell rings after the queue is gone.
void CompletionQueue::ring_for(bool solicited) {
  if (bell_ == Bell::silent || (bell_ == Bell::solicited && !solicited)) return;
  bell_ = Bell::silent;
  armed_queues_.fetch_sub(1);
  if (notifier_ != nullptr) notifier_(cookie_);
}

int CompletionQueue::poll(std::span<proto::Completion> out) {
  if (count_.load(std::memory_order_acquire) == 0) return overrun() ? -1 : 0;
  const std::lock_guard lock(mutex_);
  const std::size_t count = count_.load(std::memory_order_relaxed);
  const std::size_t n = std::min(out.size(), count);
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = ring_[head_];
    if (++head_ == ring_.size()) head_ = 0;
  }
  count_.store(count - n, std::memory_order_release);
  return static_cast<int>(n);
}

// A bell for everything is not weakened by one for less (IBTA vol. 1, 11.4.2.2).
void CompletionQueue::arm(bool solicited_only) {
  const std::lock_guard lock(mutex_);
  if (bell_ == Bell::silent) armed_queues_.fetch_add(1);
  if (bell_ != Bell::any) bell_ = solicited_only ? Bell::solicited : Bell::any;
  if (overrun()) ring_for(true);
}

void CompletionQueue::purge(Qpn qpn) {
  const std::lock_guard lock(mutex_);
  const std::size_t count = count_.load(std::memory_order_relaxed);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& completion = ring_[(head_ + i) % ring_.size()];
    if (completion.qpn != qpn) ring_[(head_ + kept++) % ring_.size()] = completion;
  }
  count_.store(kept, std::memory_order_release);
}

Result<void> CompletionQueue::resize(std::uint32_t depth) {
  std::vector<proto::Completion> ring(depth);
  const std::lock_guard lock(mutex_);
  const std::size_t count = count_.load(std::memory_order_relaxed);
  if (count > depth) return fail(Errc::in_use, "{} completions wait, {} would fit: poll first", count, depth);
  for (std::size_t i = 0; i < count; ++i) ring[i] = ring_[(head_ + i) % ring_.size()];
  ring_.swap(ring);
  head_ = 0;
  return {};
}

}  // namespace beeline::nic
