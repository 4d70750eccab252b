// Which pointers are live objects of this provider: a program that frees twice, or hands
// in what another library made, gets EINVAL instead of a crash.
#pragma once

#include <mutex>
#include <unordered_set>

namespace beeline::verbs::soft {

class Registry {
 public:
  void add(const void* object) {
    const std::lock_guard guard(lock_);
    live_.insert(object);
  }
  // True for the one caller that may now free it.
  bool remove(const void* object) {
    const std::lock_guard guard(lock_);
    return live_.erase(object) == 1;
  }
  bool holds(const void* object) const {
    const std::lock_guard guard(lock_);
    return live_.count(object) == 1;
  }

 private:
  mutable std::mutex lock_;
  std::unordered_set<const void*> live_;
};

}  // namespace beeline::verbs::soft
