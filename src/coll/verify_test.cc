// verify must refuse every plan that was damaged in one place.
//
// A damaged plan survives lawfully only under one of these rules:
//   swap      two neighbours that are not both sends to, or both receives from, the same peer and
//             do not depend on each other mean the same in either order; not even tried here
//   fold      with two ranks both orders of the operands, a+b and b+a, go round the ring once; so where
//             only one rank combines a chunk, either is right
//   barrier   a dependency of a barrier matters only if, without it, some rank gets out while another
//             is still held back; the test plays that out by itself
#include "coll/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>

namespace beeline::coll {
namespace {

using Plans = std::vector<Plan>;

Plans plans_for(Operation operation, int size, int root = 0, Algorithm algorithm = Algorithm::ring) {
  Plans plans;
  for (int rank = 0; rank < size; ++rank)
    plans.push_back(make_plan(operation, algorithm, size, Rank{rank}, Rank{root}).value());
  return plans;
}

void for_each_case(const std::function<void(const Plans&)>& body) {
  // The latter two have many more steps: three ranks have two rounds and all kinds of steps.
  for (const auto& [algorithm, largest] :
       {std::pair(Algorithm::ring, 8), {Algorithm::direct, 3}, {Algorithm::dissemination, 3}})
    for (const Operation operation : {Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather,
                                      Operation::broadcast, Operation::barrier})
      for (int size = 1; size <= largest; ++size)
        for (int root = 0; root < (operation == Operation::broadcast ? size : 1); ++root)
          body(plans_for(operation, size, root, algorithm));
}

// Calls `body` with every rank and step; it damages a copy of the plans.
void for_each_step(const Plans& plans, const std::function<void(std::size_t rank, std::size_t index)>& body) {
  for (std::size_t rank = 0; rank < plans.size(); ++rank)
    for (std::size_t index = 0; index < plans[rank].steps.size(); ++index) body(rank, index);
}

struct Tally {
  int killed = 0, lawful = 0;
  void expect_killed(const Plans& mutant, const std::string& what) {
    const Plan& plan = mutant[0];
    if (verify(mutant))
      ++killed;
    else
      ADD_FAILURE() << name(plan.operation) << " of " << plan.group_size << ", root " << plan.root.value
                    << ": survived " << what;
  }
  void print(const char* kind) const {
    std::printf("  %-12s %6d mutants killed, %d lawful survivors\n", kind, killed, lawful);
  }
};

std::string at(std::size_t rank, std::size_t index) {
  return "rank " + std::to_string(rank) + " step " + std::to_string(index);
}

void renumber(std::vector<Step>& steps, const std::function<std::uint32_t(std::uint32_t)>& moved) {
  for (Step& step : steps)
    for (std::uint32_t& before : step.after) before = moved(before);
}

TEST(Mutants, ADroppedStepIsNoticed) {
  Tally tally;
  for_each_case([&](const Plans& plans) {
    for_each_step(plans, [&](std::size_t rank, std::size_t index) {
      Plans mutant = plans;
      auto& steps = mutant[rank].steps;
      for (Step& step : steps)
        step.after.erase(std::remove(step.after.begin(), step.after.end(), index), step.after.end());
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(index));
      renumber(steps, [&](std::uint32_t i) { return i > index ? i - 1 : i; });
      tally.expect_killed(mutant, "without " + at(rank, index));
    });
  });
  tally.print("dropped");
  EXPECT_GT(tally.killed, 1000);
}

TEST(Mutants, ADoubledStepIsNoticed) {
  Tally tally;
  for_each_case([&](const Plans& plans) {
    for_each_step(plans, [&](std::size_t rank, std::size_t index) {
      Plans mutant = plans;
      auto& steps = mutant[rank].steps;
      renumber(steps, [&](std::uint32_t i) { return i > index ? i + 1 : i; });
      const Step again = steps[index];
      steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(index), again);
      tally.expect_killed(mutant, "twice " + at(rank, index));
    });
  });
  tally.print("doubled");
  EXPECT_GT(tally.killed, 1000);
}

bool incoming(const Step& step) {
  return step.kind == StepKind::receive || step.kind == StepKind::receive_reduce;
}
bool has_peer(const Step& step) { return step.kind != StepKind::copy && step.kind != StepKind::reduce; }
bool order_matters(const Step& first, std::size_t first_index, const Step& second) {
  if (std::find(second.after.begin(), second.after.end(), first_index) != second.after.end()) return true;
  if (!has_peer(first) || !has_peer(second) || first.peer != second.peer) return false;
  return incoming(first) == incoming(second);
}

TEST(Mutants, SwappedNeighboursAreNoticed) {
  Tally tally;
  for_each_case([&](const Plans& plans) {
    for_each_step(plans, [&](std::size_t rank, std::size_t index) {
      Plans mutant = plans;
      auto& steps = mutant[rank].steps;
      if (index + 1 == steps.size() || !order_matters(steps[index], index, steps[index + 1])) return;
      std::swap(steps[index], steps[index + 1]);
      renumber(steps, [&](std::uint32_t i) { return i == index ? i + 1 : i == index + 1 ? i - 1 : i; });
      tally.expect_killed(mutant, "swapped " + at(rank, index));
    });
  });
  // Sends and receives alternate in our plans, so also swap with the next one of the same kind.
  for_each_case([&](const Plans& plans) {
    for_each_step(plans, [&](std::size_t rank, std::size_t index) {
      Plans mutant = plans;
      auto& steps = mutant[rank].steps;
      if (index + 2 >= steps.size() || !has_peer(steps[index])) return;
      Step &a = steps[index], &b = steps[index + 2];
      if (a.peer != b.peer || a.kind != b.kind || plans[0].operation == Operation::barrier) return;
      std::swap(a.source, b.source);
      std::swap(a.destination, b.destination);
      tally.expect_killed(mutant, "crossed " + at(rank, index));
    });
  });
  tally.print("swapped");
  EXPECT_GT(tally.killed, 500);
}

TEST(Mutants, AMisdirectedStepIsNoticed) {
  Tally tally;
  for_each_case([&](const Plans& plans) {
    const auto damage = [&](std::size_t rank, std::size_t index, const std::function<void(Step&)>& change) {
      Plans mutant = plans;
      change(mutant[rank].steps[index]);
      tally.expect_killed(mutant, "misdirected " + at(rank, index));
    };
    const int size = static_cast<int>(plans.size());
    for_each_step(plans, [&](std::size_t rank, std::size_t index) {
      const Step& step = plans[rank].steps[index];
      for (int peer = -1; peer <= size; ++peer)
        if (has_peer(step) && peer != step.peer.value)
          damage(rank, index, [&](Step& s) { s.peer = Rank{peer}; });
      for (const auto member : {&Step::source, &Step::operand, &Step::destination}) {
        const bool used = member == &Step::source    ? step.kind != StepKind::receive
                          : member == &Step::operand ? step.kind == StepKind::reduce
                                                     : step.kind != StepKind::send;
        if (!used) continue;
        const bool in_scratch = (step.*member).buffer == Buffer::scratch;
        const std::uint32_t chunks = in_scratch ? scratch_chunks(plans[0]) : plans[0].chunk_count;
        for (std::uint32_t chunk = 0; chunk <= chunks; ++chunk)
          if (chunk != (step.*member).chunk) damage(rank, index, [&](Step& s) { (s.*member).chunk = chunk; });
        for (const Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch})
          if (buffer != (step.*member).buffer)
            damage(rank, index, [&](Step& s) { (s.*member).buffer = buffer; });
      }
    });
  });
  tally.print("misdirected");
  EXPECT_GT(tally.killed, 10000);
}

TEST(Mutants, AStepOfAnotherKindIsNoticed) {
  Tally tally;
  for_each_case([&](const Plans& plans) {
    for_each_step(plans, [&](std::size_t rank, std::size_t index) {
      for (const StepKind kind :
           {StepKind::send, StepKind::receive, StepKind::receive_reduce, StepKind::copy, StepKind::reduce}) {
        Plans mutant = plans;
        if (kind == mutant[rank].steps[index].kind) continue;
        mutant[rank].steps[index].kind = kind;
        tally.expect_killed(mutant, "another kind of " + at(rank, index));
      }
      Plans mutant = plans;
      mutant[rank].steps[index].completes = !mutant[rank].steps[index].completes;
      tally.expect_killed(mutant, "wrong completes of " + at(rank, index));
    });
  });
  tally.print("other kind");
}

TEST(Mutants, OperandsTheWrongWayRoundAreNoticed) {
  Tally tally;
  for_each_case([&](const Plans& plans) {
    for_each_step(plans, [&](std::size_t rank, std::size_t index) {
      Plans mutant = plans;
      Step& step = mutant[rank].steps[index];
      if (step.kind != StepKind::receive_reduce && step.kind != StepKind::reduce) return;
      step.peer_first = false;
      std::swap(step.source, step.operand);
      if (step.kind == StepKind::receive_reduce) std::swap(step.source, step.operand);
      const bool alone =
          step.kind == StepKind::receive_reduce || plans[0].operation == Operation::reduce_scatter;
      if (plans.size() == 2 && alone) {  // rule "fold"
        EXPECT_EQ(verify(mutant), std::nullopt);
        ++tally.lawful;
      } else {
        tally.expect_killed(mutant, "operands of " + at(rank, index));
      }
    });
  });
  tally.print("operands");
}

// Runs a barrier as far as it gets while `held_back` does nothing. Does `watched` get out?
bool gets_out(const Plans& plans, std::size_t held_back, std::size_t watched) {
  std::vector<std::vector<bool>> done(plans.size());
  for (std::size_t rank = 0; rank < plans.size(); ++rank) done[rank].resize(plans[rank].steps.size());
  const auto find = [&](std::size_t rank, StepKind kind, int peer, int k) {
    for (std::size_t i = 0;; ++i) {
      const Step& step = plans[rank].steps[i];
      if (step.kind == kind && step.peer.value == peer && k-- == 0) return i;
    }
  };
  const auto ordinal = [&](std::size_t rank, std::size_t index) {
    int k = 0;
    for (std::size_t i = 0; i < index; ++i) {
      const Step &a = plans[rank].steps[i], &b = plans[rank].steps[index];
      k += a.kind == b.kind && a.peer == b.peer;
    }
    return k;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for_each_step(plans, [&](std::size_t rank, std::size_t index) {
      const Step& step = plans[rank].steps[index];
      if (rank == held_back || done[rank][index]) return;
      for (const std::uint32_t before : step.after)
        if (!done[rank][before]) return;
      if (step.kind == StepKind::receive) {
        const auto sender = static_cast<std::size_t>(step.peer.value);
        if (!done[sender][find(sender, StepKind::send, static_cast<int>(rank), ordinal(rank, index))]) return;
      }
      moved = done[rank][index] = true;
    });
  }
  return std::find(done[watched].begin(), done[watched].end(), false) == done[watched].end();
}

bool is_barrier(const Plans& plans) {
  for (std::size_t a = 0; a < plans.size(); ++a)
    for (std::size_t b = 0; b < plans.size(); ++b)
      if (a != b && gets_out(plans, a, b)) return false;
  return true;
}

TEST(Mutants, ADroppedDependencyIsNoticed) {
  Tally tally;
  for_each_case([&](const Plans& plans) {
    for_each_step(plans, [&](std::size_t rank, std::size_t index) {
      for (std::size_t i = 0; i < plans[rank].steps[index].after.size(); ++i) {
        Plans mutant = plans;
        auto& after = mutant[rank].steps[index].after;
        after.erase(after.begin() + static_cast<std::ptrdiff_t>(i));
        if (plans[0].operation == Operation::barrier && is_barrier(mutant)) {  // rule "barrier"
          EXPECT_EQ(verify(mutant), std::nullopt);
          ++tally.lawful;
        } else {
          tally.expect_killed(mutant, "unordered " + at(rank, index));
        }
      }
    });
  });
  tally.print("unordered");
  EXPECT_GT(tally.killed, 500);
}

TEST(Verify, RefusesPlansThatDoNotBelongTogether) {
  EXPECT_NE(verify({}), std::nullopt);
  Plans plans = plans_for(Operation::all_reduce, 3);
  std::swap(plans[0], plans[1]);
  EXPECT_NE(verify(plans), std::nullopt);
  plans = plans_for(Operation::all_reduce, 3);
  plans[1] = plans_for(Operation::all_gather, 3)[1];
  EXPECT_NE(verify(plans), std::nullopt);
  plans = plans_for(Operation::broadcast, 3, 1);
  plans[2] = plans_for(Operation::broadcast, 3, 2)[2];
  EXPECT_NE(verify(plans), std::nullopt);
}

TEST(Verify, RefusesCircularWaiting) {
  // Each rank receives before it sends: with two ranks nobody ever begins.
  Plans plans = plans_for(Operation::all_gather, 2);
  for (Plan& plan : plans) plan.steps = {plan.steps[0], plan.steps[2], plan.steps[1]};
  for (Plan& plan : plans) plan.steps[2].after = {1};
  const auto wrong = verify(plans);
  ASSERT_TRUE(wrong);
  EXPECT_NE(wrong->find("circle"), std::string::npos) << *wrong;
}

}  // namespace
}  // namespace beeline::coll
