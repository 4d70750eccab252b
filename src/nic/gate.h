// A gate that copies pass: enter, look, copy, leave. Closing it waits until nobody is inside,
// and nobody gets in afterwards.
#pragma once

#include <atomic>
#include <cstdint>

namespace beeline::nic {

class Gate {
 public:
  // Starts closed. What was written before open() is seen by whoever enters.
  void open() { state_.fetch_and(~closed_bit, std::memory_order_release); }

  [[nodiscard]] bool enter() {
    std::uint32_t state = state_.load(std::memory_order_relaxed);
    while ((state & closed_bit) == 0)
      if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire,
                                       std::memory_order_relaxed))
        return true;
    return false;
  }
  void leave() {
    if (state_.fetch_sub(1, std::memory_order_release) == (closed_bit | 1)) state_.notify_all();
  }

  // Returns once everybody has left. Never call it from inside.
  void close() {
    std::uint32_t state = state_.fetch_or(closed_bit, std::memory_order_acquire) | closed_bit;
    while (state != closed_bit) {
      state_.wait(state, std::memory_order_acquire);
      state = state_.load(std::memory_order_acquire);
    }
  }

 private:
  static constexpr std::uint32_t closed_bit = 1u << 31;
  std::atomic<std::uint32_t> state_{closed_bit};  // and below it, how many are inside
};

}  // namespace beeline::nic
