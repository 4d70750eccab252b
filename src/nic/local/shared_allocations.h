// Memory that this card has allocated for its user, in a file each, so that regions in it can be shared with
// the process of a peer: a WRITE there is a store (direct_writes.h).
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <unordered_set>

#include "nic/local/shared_memory.h"
#include "nic/region_table.h"

namespace beeline::nic::local {

// A region as a peer can map it.
struct Shareable {
  Descriptor file;
  std::uint64_t iova = 0;               // of the region's first byte
  std::uint64_t offset = 0, bytes = 0;  // in the file
  std::uint64_t file_bytes = 0;
};

class SharedAllocations {
 public:
  explicit SharedAllocations(RegionTable& regions) : regions_(regions) {}

  // Whole pages, all zero and all there.
  Result<void*> allocate(std::size_t bytes);
  Result<void> free(void* memory);

  // The region of this key, if peers of the domain may write there and it lies in such memory. Whoever gets
  // it can write to all of that memory, so memory for one peer is allocated apart.
  std::optional<Shareable> share(PdId domain, Key key);
  // The region is gone or has changed. Was it shared?
  bool forget(Key key);

  void abandon_after_fork();

 private:
  struct Allocation {
    SharedMemory memory;
    std::size_t bytes = 0;
  };

  RegionTable& regions_;
  std::mutex mutex_;
  std::map<std::uintptr_t, Allocation> allocations_;  // by where they begin
  std::unordered_set<std::uint32_t> shared_;          // keys
};

}  // namespace beeline::nic::local
