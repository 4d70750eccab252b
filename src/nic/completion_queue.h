// A completion queue: a bounded ring that an application drains, and a bell that rings
// once when armed.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "nic/card.h"

namespace beeline::nic {

class CompletionQueue {
 public:
  // `armed_queues` counts the queues whose bell is armed; it outlives the queue.
  CompletionQueue(std::uint32_t depth, Notifier notifier, void* cookie, std::atomic<int>& armed_queues,
                  EventSink events = nullptr);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // False when there was no room: the queue is in error for good (IBTA vol. 1, 11.6.3.1), and the
  // queue pairs that complete into it must go to ERR.
  bool push(std::span<const proto::Completion> completions);
  // What was there before an overrun still comes out; after that -1.
  int poll(std::span<proto::Completion> out);
  void arm(bool solicited_only);
  // Forgets the completions of a queue pair that is destroyed or reset.
  void purge(Qpn qpn);
  // Keeps what waits, in order. in_use when more waits than fits.
  Result<void> resize(std::uint32_t depth);
  bool overrun() const { return overrun_.load(std::memory_order_acquire); }

  // Queue pairs that complete here; kept by the card.
  std::uint32_t users = 0;

 private:
  enum class Bell : std::uint8_t { silent, solicited, any };

  bool append(const proto::Completion& completion);
  void ring_for(bool solicited);
  void note_overrun();

  std::mutex mutex_;
  std::vector<proto::Completion> ring_;
  std::size_t head_ = 0;               // oldest
  std::atomic<std::size_t> count_{0};  // written under the lock, read before taking it
  std::atomic<bool> overrun_{false};
  Bell bell_ = Bell::silent;
  Notifier notifier_;
  EventSink events_;
  void* cookie_;
  std::atomic<int>& armed_queues_;
};

}  // namespace beeline::nic
