// The sentence behind an errno value, kept for the thread whose call failed.
#pragma once

#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace beeline::verbs {

class Reason {
 public:
  void note(std::string sentence) {
    const std::lock_guard guard(lock_);
    thread_ = std::this_thread::get_id();
    sentence_ = std::move(sentence);
  }
  // Once; empty when another thread failed last.
  std::string take() {
    const std::lock_guard guard(lock_);
    if (thread_ != std::this_thread::get_id()) return {};
    return std::exchange(sentence_, {});
  }

 private:
  std::mutex lock_;
  std::thread::id thread_;
  std::string sentence_;
};

}  // namespace beeline::verbs
