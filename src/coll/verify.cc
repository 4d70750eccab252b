#include "coll/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "coll/event_graph.h"

namespace beeline::coll {
namespace {

using Verdict = std::optional<std::string>;

constexpr std::string_view buffer_name(Buffer buffer) {
  return buffer == Buffer::input ? "input" : buffer == Buffer::output ? "output" : "scratch";
}
std::string text(Slice slice) { return fmt::format("{}[{}]", buffer_name(slice.buffer), slice.chunk); }

bool receives(const Step& step) {
  return step.kind == StepKind::receive || step.kind == StepKind::receive_reduce;
}
bool combines(const Step& step) {
  return step.kind == StepKind::receive_reduce || step.kind == StepKind::reduce;
}
// What a step reads on its own rank.
std::vector<Slice> sources(const Step& step) {
  if (step.kind == StepKind::receive) return {};
  if (step.kind == StepKind::reduce) return {step.source, step.operand};
  return {step.source};
}
bool writes(const Step& step) { return step.kind != StepKind::send; }

// What a chunk of memory holds: contributions of `ranks` to `chunk`, folded from the left
// in that order. No ranks: undefined.
struct Value {
  std::uint32_t chunk = 0;
  std::vector<int> ranks;
  bool operator==(const Value&) const = default;
};

class Verifier {
 public:
  explicit Verifier(std::span<const Plan> plans) : plans_(plans), size_(static_cast<int>(plans.size())) {}

  Verdict run() {
    if (auto wrong = structure()) return wrong;
    number_steps();
    if (auto wrong = match_messages()) return wrong;
    EventGraph graph = build_graph();
    if (auto wrong = progress(graph)) return wrong;
    if (auto wrong = progress_as_listed(graph)) return wrong;
    const auto order = graph.topological_order();
    const Reachability reach(graph, *order);
    if (plans_[0].operation == Operation::barrier) return everybody_has_begun(reach);
    for (const bool in_place : {false, true}) {
      if (auto wrong = races(reach, in_place)) return wrong;
      if (auto wrong = values(*order, in_place)) return wrong;
    }
    return std::nullopt;
  }

 private:
  struct Site {
    int rank;
    std::size_t index;
  };

  const Step& step(Site site) const { return plans_[site.rank].steps[site.index]; }
  std::size_t number(Site site) const { return first_[site.rank] + site.index; }
  std::string text_of(Site site) const { return fmt::format("step {} of rank {}", site.index, site.rank); }
  template <class Check>
  Verdict for_each_step(Check check) const {
    for (int rank = 0; rank < size_; ++rank)
      for (std::size_t index = 0; index < plans_[rank].steps.size(); ++index)
        if (auto wrong = check(Site{rank, index})) return wrong;
    return std::nullopt;
  }

  // ---- structure

  Verdict structure() const {
    if (plans_.empty()) return "there is no plan";
    for (int rank = 0; rank < size_; ++rank) {
      const Plan& plan = plans_[rank];
      if (plan.rank.value != rank || plan.group_size != size_)
        return fmt::format("plan {} is for rank {} of {}", rank, plan.rank.value, plan.group_size);
      if (plan.operation != plans_[0].operation || plan.root != plans_[0].root ||
          plan.chunk_count != plans_[0].chunk_count)
        return fmt::format("plans 0 and {} differ in operation, root or chunks", rank);
    }
    const bool whole =
        plans_[0].operation == Operation::broadcast || plans_[0].operation == Operation::barrier;
    if (plans_[0].chunk_count != (whole ? 1u : static_cast<unsigned>(size_))) return "wrong number of chunks";
    return for_each_step([&](Site site) { return step_structure(site); });
  }

  Verdict step_structure(Site site) const {
    const Step& s = step(site);
    for (const std::uint32_t before : s.after)
      if (before >= site.index) return text_of(site) + " waits for itself or a later step";
    const bool local = s.kind == StepKind::copy || s.kind == StepKind::reduce;
    if (!local && (s.peer.value < 0 || s.peer.value >= size_ || s.peer.value == site.rank))
      return fmt::format("{}: peer {} is not another rank of the group", text_of(site), s.peer.value);
    if (s.completes && !combines(s)) return text_of(site) + " completes without reducing";
    if (plans_[0].operation == Operation::barrier) return barrier_step(site);
    for (const Slice read : sources(s))
      if (!exists(site.rank, read))
        return fmt::format("{} reads {}, which does not exist", text_of(site), text(read));
    if (writes(s) && !exists(site.rank, s.destination))
      return fmt::format("{} writes {}, which does not exist", text_of(site), text(s.destination));
    if (writes(s) && s.destination.buffer == Buffer::input) return text_of(site) + " writes to the input";
    return std::nullopt;
  }

  // The messages of a barrier are empty; only sends and receives make sense, and no slice does.
  Verdict barrier_step(Site site) const {
    const Step& s = step(site);
    if (s.kind != StepKind::send && s.kind != StepKind::receive)
      return text_of(site) + " moves data in a barrier";
    if (s.source != Slice{} || s.operand != Slice{} || s.destination != Slice{})
      return text_of(site) + " names memory in a barrier";
    return std::nullopt;
  }

  bool exists(int rank, Slice slice) const {
    const Operation operation = plans_[0].operation;
    const bool own_only = (operation == Operation::all_gather && slice.buffer == Buffer::input) ||
                          (operation == Operation::reduce_scatter && slice.buffer == Buffer::output);
    if (slice.buffer == Buffer::scratch) return slice.chunk < scratch_chunks(plans_[0]);
    return own_only ? slice.chunk == static_cast<std::uint32_t>(rank) : slice.chunk < plans_[0].chunk_count;
  }

  // ---- events

  void number_steps() {
    for (const Plan& plan : plans_) {
      first_.push_back(step_count_);
      step_count_ += plan.steps.size();
    }
  }

  Verdict match_messages() {
    std::map<std::pair<int, int>, std::vector<Site>> sends, arrivals;  // by (from, to)
    for_each_step([&](Site site) -> Verdict {
      const Step& s = step(site);
      if (s.kind == StepKind::send) sends[{site.rank, s.peer.value}].push_back(site);
      if (receives(s)) arrivals[{s.peer.value, site.rank}].push_back(site);
      return std::nullopt;
    });
    for (int from = 0; from < size_; ++from)
      for (int to = 0; to < size_; ++to) {
        const auto &sent = sends[{from, to}], &received = arrivals[{from, to}];
        if (sent.size() != received.size())
          return fmt::format("rank {} sends {} messages to rank {}, which receives {}", from, sent.size(), to,
                             received.size());
        for (std::size_t k = 0; k < sent.size(); ++k) messages_.push_back({sent[k], received[k]});
      }
    return std::nullopt;
  }

  EventGraph build_graph() const {
    EventGraph graph(step_count_);
    for_each_step([&](Site site) -> Verdict {
      for (const std::uint32_t before : step(site).after)
        graph.add(EventGraph::end(number({site.rank, before})), EventGraph::start(number(site)));
      return std::nullopt;
    });
    for (const auto& [sent, received] : messages_)
      graph.add(EventGraph::start(number(sent)), EventGraph::end(number(received)));
    return graph;
  }

  Verdict progress(EventGraph graph) const {
    for (const auto& [sent, received] : messages_)
      graph.add(EventGraph::start(number(received)), EventGraph::end(number(sent)));
    if (!graph.topological_order()) return "the steps wait for each other in a circle";
    return std::nullopt;
  }

  Verdict progress_as_listed(EventGraph graph) const {
    for_each_step([&](Site site) -> Verdict {
      if (site.index != 0)
        graph.add(EventGraph::end(number({site.rank, site.index - 1})), EventGraph::start(number(site)));
      return std::nullopt;
    });
    if (!graph.topological_order()) return "taken as listed, the steps wait for each other in a circle";
    return std::nullopt;
  }

  // ---- barrier

  Verdict everybody_has_begun(const Reachability& reach) const {
    for (int a = 0; a < size_; ++a)
      for (int b = 0; b < size_; ++b)
        if (a != b && !hears_of(reach, b, a))
          return fmt::format("rank {} can leave the barrier before rank {} has come", b, a);
    return std::nullopt;
  }
  bool hears_of(const Reachability& reach, int listener, int speaker) const {
    for (std::size_t i = 0; i < plans_[speaker].steps.size(); ++i)
      for (std::size_t j = 0; j < plans_[listener].steps.size(); ++j)
        if (reach.reaches(EventGraph::start(number({speaker, i})), EventGraph::end(number({listener, j}))))
          return true;
    return false;
  }

  // ---- races

  // Where a slice lies: in place, the same chunk of input and output is one place.
  static Slice place(Slice slice, bool in_place) {
    if (in_place && slice.buffer == Buffer::input) slice.buffer = Buffer::output;
    return slice;
  }

  Verdict races(const Reachability& reach, bool in_place) const {
    return for_each_step([&](Site a) -> Verdict {
      for (std::size_t index = a.index + 1; index < plans_[a.rank].steps.size(); ++index) {
        const Site b{a.rank, index};
        if (conflict(step(a), step(b), in_place) && !reach.ordered(number(a), number(b)) &&
            !reach.ordered(number(b), number(a)))
          return fmt::format("steps {} and {} of rank {} race for the same memory{}", a.index, index, a.rank,
                             in_place ? " (in place)" : "");
      }
      return std::nullopt;
    });
  }

  static bool conflict(const Step& a, const Step& b, bool in_place) {
    const auto same = [&](Slice x, Slice y) { return place(x, in_place) == place(y, in_place); };
    const auto reads = [&](const Step& s, Slice written) {
      const auto read = sources(s);
      return std::any_of(read.begin(), read.end(), [&](Slice slice) { return same(slice, written); });
    };
    const auto moves_nothing = [&](const Step& s) {
      return s.kind == StepKind::copy && same(s.source, s.destination);
    };
    if (moves_nothing(a) || moves_nothing(b)) return false;
    return (writes(a) && writes(b) && same(a.destination, b.destination)) ||
           (writes(a) && reads(b, a.destination)) || (writes(b) && reads(a, b.destination));
  }

  // ---- values

  using Memory = std::map<std::pair<int, Slice>, Value>;

  // Without races every order that respects the events gives the same values; a receive
  // takes what its send's source holds at the send's start.
  Verdict values(const std::vector<std::size_t>& order, bool in_place) const {
    Memory memory = initial_memory(in_place);
    std::vector<Site> sites;
    for_each_step([&](Site site) -> Verdict {
      sites.push_back(site);
      return std::nullopt;
    });
    std::vector<std::size_t> sender(step_count_, 0);
    for (const auto& [sent, received] : messages_) sender[number(received)] = number(sent);
    std::vector<Value> wire(step_count_);
    for (const std::size_t event : order) {
      const std::size_t current = event / 2;
      const bool begins = event % 2 == 0;
      const Site site = sites[current];
      if (begins != (step(site).kind == StepKind::send))
        continue;  // sends act at their start, others at their end
      if (auto wrong = execute(site, wire[sender[current]], wire[current], memory, in_place)) return wrong;
    }
    return final_values(memory, in_place);
  }

  Memory initial_memory(bool in_place) const {
    Memory memory;
    for (int rank = 0; rank < size_; ++rank)
      for (std::uint32_t chunk = 0; chunk < plans_[0].chunk_count; ++chunk) {
        const Slice slice{Buffer::input, chunk};
        const bool defined = plans_[0].operation != Operation::broadcast || plans_[0].root.value == rank;
        if (defined && exists(rank, slice)) memory[{rank, place(slice, in_place)}] = {chunk, {rank}};
      }
    return memory;
  }

  Verdict execute(Site site, const Value& arriving, Value& leaving, Memory& memory, bool in_place) const {
    const Step& s = step(site);
    std::vector<Value> read;
    for (const Slice slice : sources(s)) {
      read.push_back(memory[{site.rank, place(slice, in_place)}]);
      if (read.back().ranks.empty())
        return fmt::format("{} reads {} while it is undefined{}", text_of(site), text(slice),
                           in_place ? " (in place)" : "");
    }
    if (s.kind == StepKind::receive_reduce) read.insert(s.peer_first ? read.begin() : read.end(), arriving);
    if (s.kind == StepKind::send) {
      leaving = std::move(read[0]);
      return std::nullopt;
    }
    Value& target = memory[{site.rank, place(s.destination, in_place)}];
    target = s.kind == StepKind::receive ? arriving : read[0];
    if (!combines(s)) return std::nullopt;
    const Value& right = read[1];
    if (target.chunk != right.chunk) return text_of(site) + " combines different chunks";
    if (right.ranks.size() != 1) return text_of(site) + " combines in an order that is no fold from the left";
    target.ranks.push_back(right.ranks[0]);
    if (s.completes != (static_cast<int>(target.ranks.size()) == size_))
      return text_of(site) + " is wrong about being complete";
    return std::nullopt;
  }

  Verdict final_values(Memory& memory, bool in_place) const {
    std::map<std::uint32_t, Value> agreed;
    for (int rank = 0; rank < size_; ++rank)
      for (std::uint32_t chunk = 0; chunk < plans_[0].chunk_count; ++chunk) {
        if (!exists(rank, {Buffer::output, chunk})) continue;
        const Value& value = memory[{rank, Slice{Buffer::output, chunk}}];
        if (!right_value(value, chunk))
          return fmt::format("rank {} ends with ({} of ranks {}) in output[{}]{}", rank, value.chunk,
                             fmt::join(value.ranks, ", "), chunk, in_place ? " (in place)" : "");
        if (agreed.try_emplace(chunk, value).first->second != value)
          return fmt::format("rank {} combined chunk {} in another order", rank, chunk);
      }
    return std::nullopt;
  }

  bool right_value(const Value& value, std::uint32_t chunk) const {
    if (value.chunk != chunk || value.ranks.empty()) return false;
    switch (plans_[0].operation) {
      case Operation::all_gather:
        return value.ranks == std::vector<int>{static_cast<int>(chunk)};
      case Operation::broadcast:
        return value.ranks == std::vector<int>{plans_[0].root.value};
      default:
        break;
    }
    if (static_cast<int>(value.ranks.size()) != size_) return false;
    for (std::size_t i = 0; i + 1 < value.ranks.size(); ++i)
      if (value.ranks[i + 1] != (value.ranks[i] + 1) % size_) return false;
    return true;
  }

  std::span<const Plan> plans_;
  int size_;
  std::vector<std::size_t> first_;  // number of each rank's first step
  std::size_t step_count_ = 0;
  std::vector<std::pair<Site, Site>> messages_;
};

}  // namespace

std::optional<std::string> verify(std::span<const Plan> plans) { return Verifier(plans).run(); }

}  // namespace beeline::coll
