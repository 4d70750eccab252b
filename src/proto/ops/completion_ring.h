// Completions on their way to the owner, in order. Bounded by the queue depths: a work
// request keeps its place in its queue until its completion has been polled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "proto/ring.h"
#include "proto/types.h"

namespace beeline::proto {

class CompletionRing {
 public:
  explicit CompletionRing(std::size_t capacity) : ring_(capacity) {}

  void push(const Completion& completion) {
    ring_.push() = completion;
    ++(completion.is_receive ? receives_ : sends_);
  }
  std::size_t poll(std::span<Completion> out) {
    const std::size_t count = std::min(out.size(), ring_.size());
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = ring_.front();
      --(out[i].is_receive ? receives_ : sends_);
      ring_.pop();
    }
    return count;
  }
  bool empty() const { return ring_.empty(); }
  // Completions not yet polled, by queue.
  std::size_t sends() const { return sends_; }
  std::size_t receives() const { return receives_; }
  void clear() {
    ring_.clear();
    sends_ = receives_ = 0;
  }

 private:
  Ring<Completion> ring_;
  std::size_t sends_ = 0;
  std::size_t receives_ = 0;
};

}  // namespace beeline::proto
