// What the last atomics of a queue pair gave. A repeated one gets the same answer, and is never
// executed a second time (IBTA vol. 1, 9.7.5.1.5).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "proto/types.h"

namespace beeline::proto {

class AtomicResults {
 public:
  void add(Psn psn, std::uint64_t before) { entries_[added_++ % entries_.size()] = {psn, before}; }

  // Of the last `kept` ones.
  std::optional<std::uint64_t> find(Psn psn, std::size_t kept) const {
    const std::size_t count = std::min({added_, kept, entries_.size()});
    for (std::size_t age = 1; age <= count; ++age) {
      const Entry& entry = entries_[(added_ - age) % entries_.size()];
      if (entry.psn == psn) return entry.before;
    }
    return std::nullopt;
  }
  void clear() { added_ = 0; }

 private:
  struct Entry {
    Psn psn;
    std::uint64_t before = 0;
  };
  std::array<Entry, max_outstanding_reads> entries_{};
  std::size_t added_ = 0;
};

}  // namespace beeline::proto
