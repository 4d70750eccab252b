// A plan, prepared for execution: who waits for whom, in both directions, and which
// message a step's peer will mean.
#pragma once

#include <cstdint>
#include <vector>

#include "coll/plan.h"

namespace beeline::exec {

struct Schedule {
  struct Node {
    coll::Step step;
    std::uint32_t waits_for = 0;            // steps that must be complete first
    std::vector<std::uint32_t> dependents;  // steps that wait for this one
    std::uint32_t ordinal = 0;              // k: of the sends to, or the receives from, its peer
    // Scratch lives in the staging slot that the data arrived in, until its last reader is done.
    std::uint32_t scratch_readers = 0;  // of a step that writes scratch
    std::uint32_t scratch_writer = 0;   // of a step that reads scratch: who wrote it
  };

  coll::Plan plan;
  std::vector<Node> nodes;
  std::vector<std::uint32_t> receives;               // in the plan's order
  std::vector<std::vector<std::uint32_t>> sends_to;  // by peer, by ordinal
  bool sends_input = false;                          // the card reads the input buffer
  bool uses_output = false;                          // the card reads or writes the output buffer
};

Schedule make_schedule(coll::Plan plan);

inline bool is_receive(const coll::Step& step) {
  return step.kind == coll::StepKind::receive || step.kind == coll::StepKind::receive_reduce;
}
inline bool writes_scratch(const coll::Step& step) {
  return step.kind != coll::StepKind::send && step.destination.buffer == coll::Buffer::scratch;
}
inline bool reads_scratch(const coll::Step& step) {
  if (step.kind == coll::StepKind::receive) return false;
  return step.source.buffer == coll::Buffer::scratch ||
         (step.kind == coll::StepKind::reduce && step.operand.buffer == coll::Buffer::scratch);
}
// Does the data arrive in a staging slot?
inline bool needs_slot(const coll::Step& step) {
  return step.kind == coll::StepKind::receive_reduce ||
         (step.kind == coll::StepKind::receive && writes_scratch(step));
}

}  // namespace beeline::exec
