// Small things that bandwidth and latency loops share.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "perf/endpoint.h"
#include "perf/test.h"

namespace beeline::perf {

// What a completion belongs to, packed into its wr_id.
struct WorkId {
  bool receive = false;
  std::size_t lane = 0;     // at most 15 bits
  std::uint64_t count = 0;  // how many were posted with this one; at most 48 bits

  std::uint64_t pack() const {
    return std::uint64_t{receive} << 63 | std::uint64_t{lane} << 48 | (count & count_mask);
  }
  static WorkId unpack(std::uint64_t wr_id) {
    return {(wr_id >> 63) != 0, (wr_id >> 48) & 0x7FFF, wr_id & count_mask};
  }

 private:
  static constexpr std::uint64_t count_mask = (std::uint64_t{1} << 48) - 1;
};

ibv_wr_opcode wr_opcode(Operation operation);
std::string_view name_of(Operation operation);  // "RDMA WRITE"

// One receive into the sink area at `offset`, as long as the largest message.
Result<void> post_receive(Endpoint& end, std::size_t lane, std::uint64_t offset);

}  // namespace beeline::perf
