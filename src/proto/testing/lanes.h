// Every lane that carries operations, for tests that must pass on all of them.
#pragma once

#include <memory>
#include <string>

#include "proto/testing/pair.h"

namespace beeline::proto::testing {

// The last two share memory: with and without the means to copy from process to process.
enum class LaneKind { wire, direct, local, local_by_ring };
inline constexpr std::array all_lanes = {LaneKind::wire, LaneKind::direct, LaneKind::local,
                                         LaneKind::local_by_ring};

inline std::unique_ptr<OperationPair> make_pair(LaneKind kind, const PairOptions& options) {
  switch (kind) {
    case LaneKind::wire:
      return std::make_unique<WirePair>(options);
    case LaneKind::direct:
      return std::make_unique<DirectPair>(options);
    case LaneKind::local:
      return std::make_unique<SharedMemoryPair>(options);
    case LaneKind::local_by_ring:
      return std::make_unique<SharedMemoryPair>(options, local::Reach{false, false});
  }
  return nullptr;
}

inline std::string lane_name(const ::testing::TestParamInfo<LaneKind>& instance) {
  constexpr const char* names[] = {"Wire", "Direct", "Local", "LocalByRing"};
  return names[static_cast<std::size_t>(instance.param)];
}

}  // namespace beeline::proto::testing
