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

#include <cstdint>

#include "base/time.h"
#include "nic/local/shared_memory.h"
#include "proto/local/shared_pair.h"
#include "proto/types.h"

namespace beeline::nic::local {

// Longer ones go through the ring: by then the copying counts, not the way.
inline constexpr std::uint32_t direct_write_bytes = 4096;

class DirectWrites {
 public:
  // The queue pair shares `pair`, whose side `side` is ours.
  void begin(proto::local::SharedPair& pair, int side) {
    ours_ = &pair.gates[static_cast<std::size_t>(side)];
    theirs_ = &pair.gates[static_cast<std::size_t>(1 - side)];
  }

  // ---- as the writer

  // Whether to ask for this region: each is asked for once, and no queue pair asks for ever.
  bool should_ask(Key rkey) const { return rkey != asked_ && asks_ < most_asks; }
  void note_asked(Key rkey) {
    asked_ = rkey;
    ++asks_;
  }
  Key asked() const { return asked_; }
  // `iova` is what the region begins with, at `offset` in the memory.
  void use(SharedMemory memory, std::uint32_t number, std::uint64_t iova, std::uint64_t offset,
           std::uint64_t bytes);

  // Where these bytes of the peer's lie here, or nullptr.
  std::byte* find(Key rkey, std::uint64_t address, std::uint64_t bytes) const {
    if (number_ == 0 || rkey != asked_ || address < iova_ || bytes > bytes_ ||
        address - iova_ > bytes_ - bytes)
      return nullptr;
    return base_ + (address - iova_);
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

  bool grants(Key key) const { return granted_number_ != 0 && granted_ == key; }
  // Each permission may cost a wait, so nobody gets many.
  bool may_grant(Key key) const { return !grants(key) && last_number_ < most_grants; }
  // The number of the new permission, which takes the place of any other.
  std::uint32_t grant(Key key);
  // Returns when the peer is not inside, or does not leave for longer than any process is kept from running.
  void revoke();

  void abandon_after_fork() { memory_.abandon(); }

 private:
  static constexpr std::uint32_t most_grants = 4;
  static constexpr std::uint32_t most_asks = 4;

  proto::local::DirectGate* ours_ = nullptr;
  proto::local::DirectGate* theirs_ = nullptr;

  Key asked_{};
  std::uint32_t asks_ = 0;
  SharedMemory memory_;
  std::byte* base_ = nullptr;
  std::uint64_t iova_ = 0, bytes_ = 0;
  std::uint32_t number_ = 0;  // of the permission; 0: none

  Key granted_{};
  std::uint32_t granted_number_ = 0, last_number_ = 0;
};

// Copies so that the last eight bytes, if they lie in one word, land after all others: a reader may poll
// them.
void store_last_word_last(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace beeline::nic::local
