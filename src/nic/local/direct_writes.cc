#include "nic/local/direct_writes.h"

#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace beeline::nic::local {
namespace {

// A process that lives may be kept from running for a moment, in which it is inside.
constexpr Duration longest_wait = 1s;

}  // namespace

// The oldest makes room.
void DirectWrites::note_asked(Key rkey) {
  Window& window = windows_[asks_++ % most_regions];
  window = {};
  window.asked = true;
  window.key = rkey;
}

void DirectWrites::use(Key rkey, SharedMemory memory, std::uint32_t number, std::uint64_t iova,
                       std::uint64_t offset, std::uint64_t bytes) {
  const auto found = std::find_if(windows_.begin(), windows_.end(),
                                  [&](const Window& window) { return window.asked && window.key == rkey; });
  if (found == windows_.end()) return;
  memory.close_file();
  found->memory = std::move(memory);
  found->base = static_cast<std::byte*>(found->memory.data()) + offset;
  found->iova = iova;
  found->bytes = bytes;
  found->number = number_ = number;
}

std::uint32_t DirectWrites::grant(Key key) {
  if (granted_number_ != 0 && regions_ < most_regions) {
    granted_[regions_++] = key;
    return granted_number_;
  }
  revoke();
  ++last_number_;
  granted_ = {key};
  regions_ = 1;
  granted_number_ = last_number_;
  ours_->open.store(granted_number_);
  return granted_number_;
}

// The writer says that it is inside before it looks, and we close before we look: one of the two sees the
// other.
void DirectWrites::revoke() {
  if (std::exchange(granted_number_, 0) == 0) return;
  ours_->open.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (ours_->inside.load(std::memory_order_acquire) == 0) return;
  for (const TimePoint deadline = monotonic_now() + longest_wait;
       ours_->inside.load(std::memory_order_acquire) != 0 && monotonic_now() < deadline;)
    std::this_thread::yield();
}

void store_last_word_last(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t word_bytes = sizeof(std::uint64_t);
  if (bytes < word_bytes || reinterpret_cast<std::uintptr_t>(to + bytes) % word_bytes != 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  const std::size_t before = bytes - word_bytes;
  std::memcpy(to, from, before);
  std::uint64_t word = 0;
  std::memcpy(&word, from + before, word_bytes);
  std::atomic_ref(*reinterpret_cast<std::uint64_t*>(to + before)).store(word, std::memory_order_release);
}

}  // namespace beeline::nic::local
