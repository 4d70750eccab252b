// Which pointers are live objects of this provider, and of which kind: a program that frees twice, or
// hands in what another library made, gets EINVAL instead of a crash.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace beeline::verbs::soft {

enum class Kind : std::uint8_t {
  context,
  domain,
  region,
  channel,
  completion_queue,
  queue_pair,
  shared_queue,
  address_handle,
  window
};

class Registry {
 public:
  void add(const void* object, Kind kind) {
    const std::lock_guard guard(lock_);
    live_[object] = {kind, false};
  }
  // Alive, and nobody is destroying it.
  bool holds(const void* object, Kind kind) const {
    const std::lock_guard guard(lock_);
    const auto found = live_.find(object);
    return found != live_.end() && found->second.kind == kind && !found->second.dying;
  }
  // As long as its memory lasts: events are acknowledged while destroying waits for that.
  bool remembers(const void* object, Kind kind) const {
    const std::lock_guard guard(lock_);
    const auto found = live_.find(object);
    return found != live_.end() && found->second.kind == kind;
  }
  bool remembers(const void* object) const {
    const std::lock_guard guard(lock_);
    return live_.contains(object);
  }

  // True for the one caller that may now destroy it, and then either removes or revives it.
  bool claim(const void* object, Kind kind) {
    const std::lock_guard guard(lock_);
    const auto found = live_.find(object);
    if (found == live_.end() || found->second.kind != kind || found->second.dying) return false;
    found->second.dying = true;
    return true;
  }
  void remove(const void* object) {
    const std::lock_guard guard(lock_);
    live_.erase(object);
  }
  void revive(const void* object) {
    const std::lock_guard guard(lock_);
    live_.at(object).dying = false;
  }

 private:
  struct Entry {
    Kind kind{};
    bool dying = false;
  };
  mutable std::mutex lock_;
  std::unordered_map<const void*, Entry> live_;
};

}  // namespace beeline::verbs::soft
