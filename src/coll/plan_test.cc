#include "coll/plan.h"

#include <gtest/gtest.h>

#include <optional>

#include "coll/verify.h"

namespace beeline::coll {
namespace {

constexpr Operation all_operations[] = {Operation::all_reduce, Operation::reduce_scatter,
                                        Operation::all_gather, Operation::broadcast, Operation::barrier};

std::vector<Plan> plans_for(Operation operation, int size, int root = 0) {
  std::vector<Plan> plans;
  plans.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank)
    plans.push_back(make_plan(operation, Algorithm::ring, size, Rank{rank}, Rank{root}).value());
  return plans;
}

TEST(MakePlan, EveryPlanUpToSixteenRanksIsProved) {
  for (const Operation operation : all_operations)
    for (int size = 1; size <= 16; ++size)
      for (int root = 0; root < (operation == Operation::broadcast ? size : 1); ++root)
        EXPECT_EQ(verify(plans_for(operation, size, root)), std::nullopt)
            << name(operation) << " of " << size << " from " << root;
}

TEST(MakePlan, AGroupOfOneCopiesOnly) {
  for (const Operation operation : all_operations) {
    const auto plans = plans_for(operation, 1);
    for (const Step& step : plans[0].steps) EXPECT_EQ(step.kind, StepKind::copy);
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
