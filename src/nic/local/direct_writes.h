// WRITEs that whoever posts them executes: by stores into memory that the peer's card has allocated and
// shares with this queue pair. What a queue pair has of them on both sides.
//
//   writer                                     owner
//   wants the region            ──►   looks whether this queue pair may write there
//   maps it                     ◄──   grants: opens the gate with a new number
//   enters the gate, looks whether it is open with that number, stores, leaves
//                                     closes the gate and waits until nobody is inside
//
// The owner closes the gate before it says that the region or the queue pair is gone or in error. A peer that
// does not obey can write there all the same, as long as it lives: so nothing but what it may write at any
// time lies in such memory, and it is read as what comes from a peer is.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/time.h"
#include "nic/local/shared_memory.h"
#include "proto/local/shared_pair.h"
#include "proto/types.h"

namespace beeline::nic::local {

// What is longer goes through the ring, because by then the copying counts and not the way: but without its
// bytes, which its poster stores in the same manner as long as no lock is held for too long.
inline constexpr std::uint32_t direct_write_bytes = 4096;
inline constexpr std::uint32_t most_placed_bytes = 512 * 1024;

class DirectWrites {
 public:
  // The queue pair shares `pair`, whose side `side` is ours.
  void begin(proto::local::SharedPair& pair, int side) {
    ours_ = &pair.gates[static_cast<std::size_t>(side)];
    theirs_ = &pair.gates[static_cast<std::size_t>(1 - side)];
  }

  // ---- as the writer

  // Whether to ask for this region: each is asked for once, and no queue pair asks for ever.
  bool should_ask(Key rkey) const { return asks_ < most_asks && !has_asked(rkey); }
  void note_asked(Key rkey);
  bool has_asked(Key rkey) const {
    return std::any_of(windows_.begin(), windows_.end(),
                       [&](const Window& window) { return window.asked && window.key == rkey; });
  }
  // The memory of a region that was asked for. `iova` is what the region begins with, at `offset` in it.
  void use(Key rkey, SharedMemory memory, std::uint32_t number, std::uint64_t iova, std::uint64_t offset,
           std::uint64_t bytes);

  // Where these bytes of the peer's lie here, or nullptr.
  std::byte* find(Key rkey, std::uint64_t address, std::uint64_t bytes) const {
    for (const Window& window : windows_)
      if (window.key == rkey && window.number != 0 && window.number == number_)
        return window.find(address, bytes);
    return nullptr;
  }
  // Inside, `store` may write what find() found. False when the gate is closed.
  template <class Store>
  bool write(Store store) {
    theirs_->inside.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const bool open = theirs_->open.load(std::memory_order_acquire) == number_;
    const bool stored = open && store();
    theirs_->inside.store(0, std::memory_order_release);
    if (!open) number_ = 0;
    return stored;
  }

  // ---- as the owner

  bool grants(Key key) const {
    return granted_number_ != 0 && std::find(granted_.begin(), granted_.end(), key) != granted_.end();
  }
  // Each permission may cost a wait, so nobody gets many.
  bool may_grant(Key key) const { return !grants(key) && last_number_ < most_grants; }
  // The number of the permission: that which is in force, as long as it has room for one more region, or a
  // new one, which takes its place.
  std::uint32_t grant(Key key);
  // Returns when the peer is not inside, or does not leave for longer than any process is kept from running.
  void revoke();

  void abandon_after_fork() {
    for (Window& window : windows_) window.memory.abandon();
  }

 private:
  static constexpr std::uint32_t most_grants = 4;
  static constexpr std::uint32_t most_asks = 4;
  // Regions of one permission: one for short messages and one for long ones.
  static constexpr std::size_t most_regions = 2;

  // A region of the peer's.
  struct Window {
    std::byte* find(std::uint64_t address, std::uint64_t count) const {
      if (address < iova || count > bytes || address - iova > bytes - count) return nullptr;
      return base + (address - iova);
    }

    bool asked = false;
    Key key{};
    SharedMemory memory;
    std::byte* base = nullptr;
    std::uint64_t iova = 0, bytes = 0;
    std::uint32_t number = 0;  // of its permission; 0: none
  };

  proto::local::DirectGate* ours_ = nullptr;
  proto::local::DirectGate* theirs_ = nullptr;

  std::array<Window, most_regions> windows_;
  std::uint32_t asks_ = 0;
  std::uint32_t number_ = 0;  // of the permission; 0: none

  std::array<Key, most_regions> granted_{};
  std::size_t regions_ = 0;
  std::uint32_t granted_number_ = 0, last_number_ = 0;
};

// Copies so that the last eight bytes, if they lie in one word, land after all others: a reader may poll
// them.
void store_last_word_last(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace beeline::nic::local
