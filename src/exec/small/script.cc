#include "exec/small/script.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "exec/run/geometry.h"

namespace beeline::exec {
namespace {

using coll::Buffer;
using coll::Slice;
using coll::Step;
using coll::StepKind;
using Kind = Script::Kind;

// Takes acts in an order that respects the plan's dependencies, and checks that.
class Arrangement {
 public:
  explicit Arrangement(coll::Plan plan) : done_(plan.steps.size(), false) { script_.plan = std::move(plan); }

  void all(StepKind steps, Kind kind) {
    for (std::uint32_t i = 0; i < done_.size(); ++i)
      if (step(i).kind == steps) add({kind, Rank{-1}, {i}});
  }
  void parcel(StepKind steps, Kind kind, Rank peer) {
    Script::Act act{kind, peer, {}};
    for (std::uint32_t i = 0; i < done_.size(); ++i)
      if (step(i).kind == steps && step(i).peer == peer) act.steps.push_back(i);
    add(std::move(act));
  }
  Script take() {
    BEELINE_CHECK(std::find(done_.begin(), done_.end(), false) == done_.end());
    return std::move(script_);
  }

 private:
  const Step& step(std::uint32_t index) const { return script_.plan.steps[index]; }
  void add(Script::Act act) {
    for (const std::uint32_t index : act.steps) {
      BEELINE_CHECK(!done_[index]);
      for (const std::uint32_t before : step(index).after) BEELINE_CHECK(done_[before]);
    }
    for (const std::uint32_t index : act.steps) done_[index] = true;
    script_.acts.push_back(std::move(act));
  }

  Script script_;
  std::vector<bool> done_;
};

class Translation {
 public:
  Translation(const Script& script, const Call& call)
      : script_(script),
        geometry_(call, script.plan, UINT32_MAX),
        element_bytes_(static_cast<std::uint32_t>(element_bytes(call.dtype))),
        scratch_(coll::scratch_chunks(script.plan)) {
    for (std::uint32_t c = 0; c < script.plan.chunk_count; ++c)
      scratch_[coll::partial_chunk(script.plan, c)] = {
          Program::partial, static_cast<std::uint32_t>(geometry_.elements(0, c).begin * element_bytes_)};
    if (call.operation == coll::Operation::reduce_scatter)
      scratch_[coll::partial_chunk(script.plan, static_cast<std::uint32_t>(script.plan.rank.value))].offset =
          0;
  }

  Program run() {
    for (const Script::Act& act : script_.acts) {
      if (act.kind == Kind::send || act.kind == Kind::await)
        add_parcel(act);
      else
        add_local(act.kind, step(act.steps[0]));
    }
    return std::move(program_);
  }

 private:
  const Step& step(std::uint32_t index) const { return script_.plan.steps[index]; }

  // The chunk that a slice belongs to.
  std::uint32_t chunk(Slice slice) const {
    return slice.buffer == Buffer::scratch ? slice.chunk % script_.plan.chunk_count : slice.chunk;
  }
  std::uint32_t elements(Slice slice) const {
    return static_cast<std::uint32_t>(geometry_.elements(0, chunk(slice)).size());
  }
  Program::Place place(Slice slice) const {
    const coll::Range range = geometry_.elements(0, chunk(slice));
    switch (slice.buffer) {
      case Buffer::input:
        return {Program::input, static_cast<std::uint32_t>(geometry_.input_offset(range))};
      case Buffer::output:
        return {Program::output, static_cast<std::uint32_t>(geometry_.output_offset(range))};
      case Buffer::scratch:
        break;
    }
    return scratch_[slice.chunk];
  }

  void add_local(Kind kind, const Step& step) {
    const std::uint32_t count = elements(step.destination);
    if (count == 0) return;
    Program::Instruction local;
    local.kind = kind;
    local.completes = step.completes;
    local.bytes = count * element_bytes_;
    local.elements = count;
    local.left = place(step.source);
    if (kind == Kind::reduce) local.right = place(step.operand);
    local.out = place(step.destination);
    program_.instructions.push_back(local);
  }

  // What arrives for scratch stays in the parcel.
  void add_parcel(const Script::Act& act) {
    Program::Instruction parcel;
    parcel.kind = act.kind;
    parcel.peer = act.peer;
    parcel.first_part = static_cast<std::uint32_t>(program_.parts.size());
    const auto peer = static_cast<std::uint16_t>(Program::parcels + act.peer.value);
    const bool is_barrier = script_.plan.operation == coll::Operation::barrier;
    for (const std::uint32_t index : act.steps) {
      if (is_barrier) break;
      const Slice here = act.kind == Kind::send ? step(index).source : step(index).destination;
      const std::uint32_t bytes = elements(here) * element_bytes_;
      if (act.kind == Kind::await && here.buffer == Buffer::scratch)
        scratch_[here.chunk] = {peer, parcel.bytes};
      else if (bytes != 0)
        add_part(parcel, place(here), bytes);
      parcel.bytes += bytes;
    }
    program_.instructions.push_back(parcel);
  }
  void add_part(Program::Instruction& parcel, Program::Place here, std::uint32_t bytes) {
    if (parcel.parts != 0) {
      Program::Part& last = program_.parts.back();
      if (last.here.base == here.base && last.here.offset + last.bytes == here.offset &&
          last.in_parcel + last.bytes == parcel.bytes) {
        last.bytes += bytes;
        return;
      }
    }
    program_.parts.push_back({here, bytes, parcel.bytes});
    ++parcel.parts;
  }

  const Script& script_;
  const Geometry geometry_;
  const std::uint32_t element_bytes_;
  std::vector<Program::Place> scratch_;  // by number: where it lies
  Program program_;
};

}  // namespace

Script make_script(const coll::Plan& carrier, coll::Plan plan) {
  Arrangement arrangement(std::move(plan));
  arrangement.all(StepKind::copy, Kind::copy);
  for (const Step& step : carrier.steps)
    arrangement.parcel(step.kind, step.kind == StepKind::send ? Kind::send : Kind::await, step.peer);
  arrangement.all(StepKind::reduce, Kind::reduce);
  return arrangement.take();
}

Program make_program(const Script& script, const Call& call) { return Translation(script, call).run(); }

}  // namespace beeline::exec
