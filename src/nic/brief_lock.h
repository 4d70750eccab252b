// A lock for what is held for a moment, mostly by one thread: releasing it is a plain store, which does not
// wait until what was written before has reached the other processors. With a mutex a store into memory that
// another processor polls would cost its whole way there before anything else is done.
//
// Whoever has to wait yields, and soon sleeps in between.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace beeline::nic {

class BriefLock {
 public:
  void lock() {
    if (!try_lock()) lock_slowly();
  }
  bool try_lock() {
    return !taken_.load(std::memory_order_relaxed) && !taken_.exchange(true, std::memory_order_acquire);
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  void lock_slowly() {
    constexpr int spins = 64, yields = 64;
    for (int tries = 0; !try_lock(); ++tries) {
      if (tries >= spins + yields)
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      else if (tries >= spins)
        std::this_thread::yield();
    }
  }

  std::atomic<bool> taken_{false};
};

}  // namespace beeline::nic
