// What a rank called: every message carries it, so that ranks which call different things
// find out before a byte of data moves.
#pragma once

#include <cstdint>
#include <string>

#include "exec/communicator.h"

namespace beeline::exec {

struct Fingerprint {
  std::uint64_t sequence = 0;  // the communicator's first call is 1
  std::uint64_t count = 0;
  std::int32_t root = 0;
  coll::Operation operation = coll::Operation::barrier;
  DType dtype = DType::uint8;
  RedOp redop = RedOp::sum;
  std::uint32_t communicator = 0;

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

// Fields that mean nothing to an operation are left out, so that they cannot differ.
Fingerprint fingerprint_of(const Call& call, std::uint64_t sequence, std::uint32_t communicator);

// A number for a group's name and size: two groups are not to be mixed up.
std::uint32_t communicator_id(const std::string& name, int size);

// "all_reduce(sum, float32, 1000 elements)"
std::string describe(const Fingerprint& call);

// "rank 0 called all_reduce(…) as its call 7, but rank 1 called …": the lower rank first, so
// that both ends of a pair say it in the same words.
Error mismatch(Rank one, const Fingerprint& one_called, Rank other, const Fingerprint& other_called);

}  // namespace beeline::exec
