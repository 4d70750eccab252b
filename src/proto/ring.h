// A bounded first-in-first-out ring. Entries are named by ever-growing sequence numbers,
// which makes "is this one older" a plain comparison. Allocates once, at construction.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace beeline::proto {

template <class T>
class Ring {
 public:
  // Room for at least `capacity` entries; the store is a power of two.
  explicit Ring(std::size_t capacity)
      : slots_(std::bit_ceil(capacity == 0 ? std::size_t{1} : capacity)), mask_(slots_.size() - 1) {}

  std::uint64_t head() const { return head_; }  // sequence number of the oldest entry
  std::uint64_t tail() const { return tail_; }  // that of the next one to come
  std::size_t size() const { return static_cast<std::size_t>(tail_ - head_); }
  bool empty() const { return head_ == tail_; }
  bool full() const { return size() == slots_.size(); }
  std::size_t slot(std::uint64_t sequence) const { return static_cast<std::size_t>(sequence) & mask_; }
  std::size_t slots() const { return slots_.size(); }

  T& operator[](std::uint64_t sequence) { return slots_[slot(sequence)]; }
  const T& operator[](std::uint64_t sequence) const { return slots_[slot(sequence)]; }
  T& front() { return (*this)[head_]; }
  const T& front() const { return (*this)[head_]; }
  const T& back() const { return (*this)[tail_ - 1]; }

  // The next free entry, to be filled in place.
  T& push() {
    BEELINE_CHECK(!full());
    return slots_[slot(tail_++)];
  }
  void pop() {
    BEELINE_CHECK(!empty());
    ++head_;
  }
  void pop_back() {
    BEELINE_CHECK(!empty());
    --tail_;
  }
  void clear() { head_ = tail_; }

 private:
  std::vector<T> slots_;
  std::size_t mask_;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
};

}  // namespace beeline::proto
