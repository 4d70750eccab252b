// Where data lands that is not for the user's output: fixed slots, registered once.
// Every lane has its own.
#pragma once

#include <optional>
#include <vector>

#include "exec/connections/connections.h"
#include "exec/limits.h"

namespace beeline::exec {

class Staging {
 public:
  static Result<Staging> create(Connections& connections, std::uint32_t slot_bytes) {
    Staging staging;
    staging.slot_bytes_ = slot_bytes;
    const std::size_t bytes = std::size_t{slot_bytes} * lanes * slots_per_lane;
    BEELINE_TRY(staging.memory_, connections.allocate_for_peer(bytes));
    staging.used_.resize(std::size_t{lanes} * slots_per_lane, false);
    BEELINE_TRY(staging.region_,
                connections.register_memory(staging.memory_.get(), bytes,
                                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    return staging;
  }

  // A free slot of the lane, if there is one.
  std::optional<std::uint32_t> take(std::uint32_t lane) {
    for (std::uint32_t slot = lane * slots_per_lane; slot < (lane + 1) * slots_per_lane; ++slot)
      if (!used_[slot]) {
        used_[slot] = true;
        return slot;
      }
    return std::nullopt;
  }
  void give_back(std::uint32_t slot) { used_[slot] = false; }

  std::byte* address(std::uint32_t slot) { return memory_.get() + std::size_t{slot} * slot_bytes_; }
  const ibv_mr& region() const { return *region_; }

 private:
  std::uint32_t slot_bytes_ = 0;
  PeerWritten memory_;
  std::vector<bool> used_;
  verbs::MemoryRegion region_;  // destroyed before the memory
};

}  // namespace beeline::exec
