#include "exec/run/schedule.h"

#include "base/check.h"

namespace beeline::exec {
namespace {

using coll::Buffer;
using coll::StepKind;

// What a step reads of scratch: never two chunks of it in the plans that are run so.
coll::Slice scratch_source(const coll::Step& step) {
  return step.source.buffer == Buffer::scratch ? step.source : step.operand;
}

// The last step before `reader` that wrote its scratch source; a verified plan has one.
std::uint32_t find_writer(const std::vector<Schedule::Node>& nodes, std::uint32_t reader) {
  std::uint32_t writer = reader;
  do {
    BEELINE_CHECK(writer != 0);
    --writer;
  } while (!writes_scratch(nodes[writer].step) ||
           nodes[writer].step.destination != scratch_source(nodes[reader].step));
  return writer;
}

void note_buffers(Schedule& schedule, const coll::Step& step) {
  if (step.kind == StepKind::send && step.source.buffer == Buffer::input) schedule.sends_input = true;
  if (step.kind == StepKind::send && step.source.buffer == Buffer::output) schedule.uses_output = true;
  if (step.kind == StepKind::receive && step.destination.buffer == Buffer::output)
    schedule.uses_output = true;
}

}  // namespace

Schedule make_schedule(coll::Plan plan) {
  Schedule schedule;
  schedule.plan = std::move(plan);
  const auto count = static_cast<std::uint32_t>(schedule.plan.steps.size());
  schedule.nodes.resize(count);
  schedule.sends_to.resize(static_cast<std::size_t>(schedule.plan.group_size));
  std::vector<std::uint32_t> received(schedule.sends_to.size(), 0);
  for (std::uint32_t i = 0; i < count; ++i) {
    Schedule::Node& node = schedule.nodes[i];
    node.step = schedule.plan.steps[i];
    node.waits_for = static_cast<std::uint32_t>(node.step.after.size());
    for (const std::uint32_t before : node.step.after) schedule.nodes[before].dependents.push_back(i);
    if (reads_scratch(node.step)) {
      node.scratch_writer = find_writer(schedule.nodes, i);
      ++schedule.nodes[node.scratch_writer].scratch_readers;
    }
    const auto peer = static_cast<std::size_t>(node.step.peer.value);
    if (node.step.kind == StepKind::send) {
      node.ordinal = static_cast<std::uint32_t>(schedule.sends_to[peer].size());
      schedule.sends_to[peer].push_back(i);
    }
    if (is_receive(node.step)) {
      node.ordinal = received[peer]++;
      schedule.receives.push_back(i);
    }
    note_buffers(schedule, node.step);
  }
  return schedule;
}

}  // namespace beeline::exec
