// Proves that a set of plans (one per rank) does what its operation promises, whatever the
// timing. What is proved:
//
//   structure  peers, chunks and buffers exist; `after` names earlier steps only; nothing writes
//              to the input; the k-th send of a to b has a k-th receive of b from a
//   progress   no cycle, even if a send ends only once its receive has begun (rendezvous)
//              and none either if every rank takes its steps one by one, as listed, and sends
//              are buffered
//   races      two steps of a rank that touch the same memory, one of them writing, are ordered by
//              dependencies and messages, even if sends are buffered. A send reads its source until
//              it is complete, and its receiver may be done before that: the network may repeat it
//   values     symbolic execution: what every send and reduction reads is defined; at the end every
//              output chunk is the right expression, the same on all ranks, with each rank's
//              contribution exactly once. The operands' order is the ranks' order, beginning at
//              some rank and going round once; `completes` stands on exactly the steps that make it
//   barrier    no rank can finish before every rank has begun
//
// All of it twice: with separate input and output, and in place (the same chunk of both is
// the same memory, and copying one to the other is nothing).
#pragma once

#include <optional>
#include <span>
#include <string>

#include "coll/plan.h"

namespace beeline::coll {

// Nothing if the plans are right; else the first thing that is wrong, in words.
std::optional<std::string> verify(std::span<const Plan> plans);

}  // namespace beeline::coll
