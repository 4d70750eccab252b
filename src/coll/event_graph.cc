#include "coll/event_graph.h"

namespace beeline::coll {

std::optional<std::vector<std::size_t>> EventGraph::topological_order() const {
  std::vector<std::size_t> waiting_for(next_.size(), 0), order;
  for (const auto& successors : next_)
    for (const std::size_t event : successors) ++waiting_for[event];
  order.reserve(next_.size());
  for (std::size_t event = 0; event < next_.size(); ++event)
    if (waiting_for[event] == 0) order.push_back(event);
  for (std::size_t done = 0; done < order.size(); ++done)
    for (const std::size_t event : next_[order[done]])
      if (--waiting_for[event] == 0) order.push_back(event);
  if (order.size() != next_.size()) return std::nullopt;
  return order;
}

Reachability::Reachability(const EventGraph& graph, const std::vector<std::size_t>& order)
    : words_((graph.next_.size() + 63) / 64), bits_(graph.next_.size() * words_, 0) {
  for (auto event = order.rbegin(); event != order.rend(); ++event) {
    std::uint64_t* const row = &bits_[*event * words_];
    for (const std::size_t successor : graph.next_[*event]) {
      row[successor / 64] |= std::uint64_t{1} << (successor % 64);
      const std::uint64_t* const reached = &bits_[successor * words_];
      for (std::size_t word = 0; word < words_; ++word) row[word] |= reached[word];
    }
  }
}

}  // namespace beeline::coll
