// Puts one rank's plan together, step by step.
#pragma once

#include <utility>

#include "coll/plan.h"

namespace beeline::coll {

// Builds one rank's steps. Chunk and rank arithmetic is modulo the group's size.
class Builder {
 public:
  Builder(Operation operation, int size, Rank rank, Rank root, std::uint32_t chunk_count)
      : plan_{operation, size, rank, root, chunk_count, {}} {}

  std::uint32_t send(Rank peer, Slice source, std::vector<std::uint32_t> after) {
    return add({.kind = StepKind::send, .peer = peer, .source = source, .after = std::move(after)});
  }
  std::uint32_t receive(Rank peer, Slice destination, std::vector<std::uint32_t> after) {
    return add(
        {.kind = StepKind::receive, .peer = peer, .destination = destination, .after = std::move(after)});
  }
  std::uint32_t receive_reduce(Rank peer, Slice own, Slice destination, bool completes) {
    return add({.kind = StepKind::receive_reduce,
                .peer = peer,
                .source = own,
                .destination = destination,
                .completes = completes});
  }
  std::uint32_t copy(Slice source, Slice destination) {
    return add({.kind = StepKind::copy, .source = source, .destination = destination});
  }

  std::uint32_t reduce(Slice source, Slice operand, Slice destination, bool completes,
                       std::vector<std::uint32_t> after) {
    return add({.kind = StepKind::reduce,
                .source = source,
                .operand = operand,
                .destination = destination,
                .completes = completes,
                .after = std::move(after)});
  }

  Rank left() const { return at(-1); }
  Rank right() const { return at(1); }
  // The rank `distance` places to the right on the ring.
  Rank at(int distance) const { return Rank{wrap(plan_.rank.value + distance)}; }
  std::uint32_t chunk(int index) const { return static_cast<std::uint32_t>(wrap(index)); }
  int size() const { return plan_.group_size; }
  int rank() const { return plan_.rank.value; }
  const Plan& plan() const { return plan_; }
  Plan take() { return std::move(plan_); }

 private:
  int wrap(int value) const { return ((value % plan_.group_size) + plan_.group_size) % plan_.group_size; }
  std::uint32_t add(Step step) {
    plan_.steps.push_back(std::move(step));
    return static_cast<std::uint32_t>(plan_.steps.size() - 1);
  }

  Plan plan_;
};

}  // namespace beeline::coll
