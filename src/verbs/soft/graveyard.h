// Memory of destroyed objects, kept for a while: a program that posts to a queue pair it has just destroyed,
// or polls such a queue, finds the dead one's mark and gets an error (objects.h). The last so many deaths
// are remembered; what is older is freed.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>

namespace beeline::verbs::soft {

class Graveyard {
 public:
  template <class T>
  void bury(std::unique_ptr<T> dead) {
    Grave old;
    {
      const std::lock_guard guard(lock_);
      old = std::move(graves_[next_]);
      graves_[next_] = Grave(dead.release(), [](void* object) { delete static_cast<T*>(object); });
      next_ = (next_ + 1) % graves_.size();
    }
  }

 private:
  using Grave = std::shared_ptr<void>;
  std::mutex lock_;
  std::array<Grave, 64> graves_;
  std::size_t next_ = 0;
};

}  // namespace beeline::verbs::soft
