// Keys of registered memory to places. Looking up takes no lock and reads one cache line whatever a
// stranger asks for; everything else is under the owner's lock.
//
// The upper 24 bits of a key are its family: no two places share one, so that a memory window may
// choose the lower 8 bits of its key as it likes (IBTA vol. 1, 10.6.3.3).
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/random.h"

namespace beeline::nic {

class KeyTable {
 public:
  // A key and what it stands for; 0 is free.
  class Entry {
   public:
    void set(Key key, std::uint32_t place) {
      value_.store(std::uint64_t{key.value} << 32 | place, std::memory_order_release);
    }
    void clear() { value_.store(0, std::memory_order_release); }
    Key key() const { return Key{static_cast<std::uint32_t>(value_.load(std::memory_order_acquire) >> 32)}; }
    std::uint32_t place() const { return static_cast<std::uint32_t>(value_.load(std::memory_order_acquire)); }

   private:
    friend class KeyTable;
    std::atomic<std::uint64_t> value_{0};
  };

  // Half of the entries stay free, so that drawing a key rarely takes more than one try.
  explicit KeyTable(std::uint32_t max_keys)
      : buckets_(std::bit_ceil(std::max<std::size_t>(1, std::size_t{max_keys} * 2 / bucket_entries))) {}

  // What was set for the key, or 0.
  std::uint32_t find(Key key) const {
    for (const Entry& entry : bucket_of(key).entries) {
      const std::uint64_t value = entry.value_.load(std::memory_order_acquire);
      if (static_cast<std::uint32_t>(value >> 32) == key.value) return static_cast<std::uint32_t>(value);
    }
    return 0;
  }
  // The entry of the key's family, or nullptr.
  Entry* find_family(Key key) {
    for (Entry& entry : bucket_of(key).entries)
      if (entry.place() != 0 && family_of(entry.key()) == family_of(key)) return &entry;
    return nullptr;
  }
  // A free entry for a random key of a new family. A key whose bucket is full is never given out.
  Entry* draw(Key& key) {
    for (;;) {
      key = Key{static_cast<std::uint32_t>(secure_random())};
      // 0 and ~0 look like "no key" to many programs: no window may come to them either.
      if (family_of(key) == 0 || family_of(key) == family_of(Key{UINT32_MAX}) || find_family(key) != nullptr)
        continue;
      for (Entry& entry : bucket_of(key).entries)
        if (entry.place() == 0) return &entry;
    }
  }
  // The same family, with the lower bits of another key.
  static Key variant(Key key, Key low_bits) {
    return Key{(key.value & ~variant_mask) | (low_bits.value & variant_mask)};
  }

 private:
  static constexpr std::uint32_t bucket_entries = 8;
  static constexpr std::uint32_t variant_bits = 8, variant_mask = (1u << variant_bits) - 1;
  struct alignas(64) Bucket {
    std::array<Entry, bucket_entries> entries{};
  };

  static std::uint32_t family_of(Key key) { return key.value >> variant_bits; }
  const Bucket& bucket_of(Key key) const { return buckets_[family_of(key) & (buckets_.size() - 1)]; }
  Bucket& bucket_of(Key key) { return buckets_[family_of(key) & (buckets_.size() - 1)]; }

  std::vector<Bucket> buckets_;
};

}  // namespace beeline::nic
