// The in-process lane: two queue pairs of one process joined without packets. What a SEND,
// WRITE or READ means is ops/' business alone, and this lane proves it: the same operations
// give the same memory and the same completions as over the wire.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"
#include "proto/ops/operations.h"

namespace beeline::proto {

class DirectLane {
 public:
  // Both outlive the lane.
  DirectLane(Operations& first, Operations& second);

  // Carries out every operation that can be; true if anything happened.
  bool run(TimePoint now);
  // When a receiver that was not ready is asked again.
  TimePoint next_timeout() const;

 private:
  struct Direction {
    // Whether the oldest request has begun and is not done.
    bool in_request() const { return sequence == from.sends().head() && (done != 0 || waiting); }

    Operations& from;
    Operations& to;
    std::uint64_t sequence = 0;  // the request that the fields below are about
    std::uint32_t done = 0;      // bytes of it that have arrived
    std::uint8_t not_ready = 0;  // how often the receiver was not ready for it
    bool waiting = false;
    TimePoint wait_until{};
  };

  bool run(Direction& direction, TimePoint now);
  bool carry(Direction& direction, const SendRequest& request, TimePoint now);
  bool carry_data(Direction& direction, const SendRequest& request, TimePoint now);
  bool carry_read(Direction& direction, const SendRequest& request);
  bool carry_atomic(Direction& direction, const SendRequest& request);
  bool load(Operations& from, const SendRequest& request, std::uint32_t offset, MutableBytes out);
  bool obey(Direction& direction, const Verdict& verdict, TimePoint now);

  std::array<Direction, 2> directions_;
  std::array<std::byte, 4096> buffer_{};  // data crosses in pieces of this size
};

}  // namespace beeline::proto
