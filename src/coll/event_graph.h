// What happens before what in a set of plans. Every step is two events, its start and its
// end; edges say "not before". Used by verify.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace beeline::coll {

class EventGraph {
 public:
  explicit EventGraph(std::size_t steps) : next_(2 * steps) {
    for (std::size_t step = 0; step < steps; ++step) add(start(step), end(step));
  }

  static std::size_t start(std::size_t step) { return 2 * step; }
  static std::size_t end(std::size_t step) { return 2 * step + 1; }
  void add(std::size_t before, std::size_t after) { next_[before].push_back(after); }

  // All events in an order that respects every edge; nothing when there is a cycle.
  std::optional<std::vector<std::size_t>> topological_order() const;

 private:
  friend class Reachability;
  std::vector<std::vector<std::size_t>> next_;
};

// The transitive closure, as one row of bits per event. `order` is topological.
class Reachability {
 public:
  Reachability(const EventGraph& graph, const std::vector<std::size_t>& order);
  bool reaches(std::size_t from, std::size_t to) const {
    return from == to || (bits_[from * words_ + to / 64] >> (to % 64) & 1) != 0;
  }
  // Is step a over before step b begins?
  bool ordered(std::size_t a, std::size_t b) const {
    return reaches(EventGraph::end(a), EventGraph::start(b));
  }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

}  // namespace beeline::coll
