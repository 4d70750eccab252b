// Which pointers are live objects of this provider, and of which kind: a program that frees twice, or
// hands in what another library made, gets EINVAL instead of a crash.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

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
  // `owner`: the context that it was made from.
  void add(const void* object, Kind kind, const void* owner = nullptr) {
    const std::lock_guard guard(lock_);
    live_[object] = {kind, false, owner};
  }
  // All of one kind that were made from a context and live.
  std::vector<const void*> made_from(const void* owner, Kind kind) const {
    const std::lock_guard guard(lock_);
    std::vector<const void*> made;
    for (const auto& [object, entry] : live_)
      if (entry.owner == owner && entry.kind == kind && !entry.dying) made.push_back(object);
    return made;
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
    const void* owner = nullptr;
  };
  mutable std::mutex lock_;
  std::unordered_map<const void*, Entry> live_;
};

}  // namespace beeline::verbs::soft
