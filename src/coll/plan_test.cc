#include "coll/plan.h"

#include <gtest/gtest.h>

#include <optional>

#include "coll/verify.h"

namespace beeline::coll {
namespace {

constexpr Operation all_operations[] = {Operation::all_reduce, Operation::reduce_scatter,
                                        Operation::all_gather, Operation::broadcast, Operation::barrier};

std::vector<Plan> plans_for(Operation operation, int size, int root = 0,
                            Algorithm algorithm = Algorithm::ring) {
  std::vector<Plan> plans;
  plans.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank)
    plans.push_back(make_plan(operation, algorithm, size, Rank{rank}, Rank{root}).value());
  return plans;
}

TEST(MakePlan, EveryPlanUpToSixteenRanksIsProved) {
  for (const Operation operation : all_operations)
    for (int size = 1; size <= 16; ++size)
      for (int root = 0; root < (operation == Operation::broadcast ? size : 1); ++root)
        EXPECT_EQ(verify(plans_for(operation, size, root)), std::nullopt)
            << name(operation) << " of " << size << " from " << root;
}

// Their plans grow with the square of the group and more: the direct one is for small groups anyway.
TEST(MakePlan, EveryPlanInWhichEveryRankCombinesItselfIsProved) {
  for (const auto& [algorithm, largest] : {std::pair(Algorithm::direct, 8), {Algorithm::dissemination, 9}})
    for (const Operation operation : all_operations)
      for (int size = 1; size <= largest; ++size)
        for (int root = 0; root < (operation == Operation::broadcast ? size : 1); ++root)
          EXPECT_EQ(verify(plans_for(operation, size, root, algorithm)), std::nullopt)
              << name(operation) << " of " << size << " from " << root << ", " << name(algorithm);
}

TEST(MakePlan, AGroupOfOneCopiesOnly) {
  for (const Algorithm algorithm : all_algorithms)
    for (const Operation operation : all_operations) {
      const auto plans = plans_for(operation, 1, 0, algorithm);
      for (const Step& step : plans[0].steps) EXPECT_EQ(step.kind, StepKind::copy);
    }
}

// That is what lets one message carry everything from one rank to another.
TEST(MakePlan, ADisseminationMeetsEveryPeerOnce) {
  for (int size = 2; size <= 17; ++size)
    for (const Plan& plan : plans_for(Operation::barrier, size, 0, Algorithm::dissemination)) {
      std::vector<int> to(static_cast<std::size_t>(size)), from(to);
      for (const Step& step : plan.steps)
        ++(step.kind == StepKind::send ? to : from)[static_cast<std::size_t>(step.peer.value)];
      for (const int messages : to) EXPECT_LE(messages, 1);
      for (const int messages : from) EXPECT_LE(messages, 1);
    }
}

TEST(MakePlan, RejectsRanksAndRootsOutsideTheGroup) {
  const auto code = [](int size, int rank, int root) {
    const auto plan = make_plan(Operation::broadcast, Algorithm::ring, size, Rank{rank}, Rank{root});
    return plan ? std::nullopt : std::optional(plan.error().code);
  };
  EXPECT_EQ(code(2, 1, 1), std::nullopt);
  EXPECT_EQ(code(0, 0, 0), Errc::invalid_argument);
  EXPECT_EQ(code(2, 2, 0), Errc::invalid_argument);
  EXPECT_EQ(code(2, -1, 0), Errc::invalid_argument);
  EXPECT_EQ(code(2, 0, 2), Errc::invalid_argument);
  EXPECT_EQ(code(2, 0, -1), Errc::invalid_argument);
}

TEST(MakePlan, ReductionSendsEachByteTwiceAtMost) {
  const auto plans = plans_for(Operation::all_reduce, 5);
  for (const Plan& plan : plans) {
    std::size_t sends = 0;
    for (const Step& step : plan.steps) sends += step.kind == StepKind::send;
    EXPECT_EQ(sends, 2u * (5 - 1));  // chunks of a fifth each
  }
}

TEST(ChunkRange, CoversEveryElementOnceWithLengthsThatDifferByOne) {
  for (std::size_t count : {0u, 1u, 2u, 7u, 64u, 1001u})
    for (std::uint32_t chunks = 1; chunks <= 9; ++chunks) {
      std::size_t next = 0;
      for (std::uint32_t index = 0; index < chunks; ++index) {
        const Range range = chunk_range(count, chunks, index);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), count / chunks);
        EXPECT_LE(range.size(), count / chunks + 1);
        next = range.end;
      }
      EXPECT_EQ(next, count);
    }
}

}  // namespace
}  // namespace beeline::coll
