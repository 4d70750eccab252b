// One rank calls something else: in groups of 2 to 8, at every place, in every way, every rank gets
// an error in that call that names the offender and both calls. Nobody hangs, nobody succeeds.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "base/random.h"
#include "exec/fingerprint.h"
#include "exec/test_group.h"

namespace beeline::exec {
namespace {

using coll::Operation;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TestGroup;

constexpr int sizes[] = {2, 3, 4, 5, 6, 8};
constexpr std::size_t sample = 120;

struct Case {
  int size = 0, offender = 0;
  Call usual, odd;  // without buffers
};

std::string text_of(const Call& call) { return describe(fingerprint_of(call, 1, 0)); }

// What everybody else calls.
std::vector<Call> usual_calls(int size) {
  std::vector<Call> calls{{.operation = Operation::barrier}};
  for (const std::size_t count : {0, 1, 16})
    for (const auto operation : {Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather})
      calls.push_back({.operation = operation, .count = count, .dtype = DType::float32});
  for (const std::size_t count : {0, 16})
    for (int root = 0; root < size; ++root)
      calls.push_back(
          {.operation = Operation::broadcast, .count = count, .dtype = DType::float32, .root = Rank{root}});
  return calls;
}

// What the offender may call instead: one field differs that means something to the operation.
std::vector<Call> odd_calls(const Call& usual, int size) {
  std::vector<Call> odd;
  const auto add = [&](auto change) {
    Call call = usual;
    change(call);
    if (text_of(call) != text_of(usual)) odd.push_back(call);
  };
  for (const auto operation : {Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather,
                               Operation::broadcast, Operation::barrier})
    add([&](Call& call) { call.operation = operation; });
  add([](Call& call) { call.dtype = call.dtype == DType::int32 ? DType::float32 : DType::int32; });
  add([](Call& call) { call.redop = RedOp::max; });
  for (const std::size_t count : {0, 17}) add([&](Call& call) { call.count = count; });
  for (int root = 0; root < size; ++root) add([&](Call& call) { call.root = Rank{root}; });
  return odd;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int size : sizes)
    for (const Call& usual : usual_calls(size))
      for (const Call& odd : odd_calls(usual, size))
        for (int offender = 0; offender < size; ++offender) cases.push_back({size, offender, usual, odd});
  return cases;
}

// All with BEELINE_TEST_FULL=1, else some of them.
std::vector<Case> chosen_cases(Prng& random) {
  auto cases = all_cases();
  const char* full = std::getenv("BEELINE_TEST_FULL");
  if (full != nullptr && std::string_view(full) == "1") {
    std::printf("sample space: %zu mismatches: group size, call, difference, offender\n", cases.size());
    return cases;
  }
  for (std::size_t i = 0; i < sample; ++i) std::swap(cases[i], cases[i + random.below(cases.size() - i)]);
  cases.resize(sample);
  return cases;
}

struct Memory {
  std::array<float, std::size_t{8} * 17> send{}, receive{};
  Call with(Call call) {
    call.send = send.data();
    call.receive = receive.data();
    return call;
  }
};

// First one call that all make alike, then the one that differs: every rank comes when it likes.
void check(const Case& chosen, std::uint64_t seed) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, chosen.size);
  ASSERT_TRUE(group.connect());
  group.on_all_ranks([&](int rank) {
    const auto first =
        testing::run(group[rank], Memory().with({.operation = Operation::all_gather, .count = 1}));
    EXPECT_TRUE(first) << first.error().message;
  });
  group.on_all_ranks([&](int rank) {
    Prng random(seed * 8 + static_cast<std::uint64_t>(rank));
    if (random.below(2) == 0) std::this_thread::sleep_for(std::chrono::microseconds(random.below(3000)));
    Memory memory;
    const auto result =
        testing::run(group[rank], memory.with(rank == chosen.offender ? chosen.odd : chosen.usual));
    ASSERT_FALSE(result) << "rank " << rank << " returned success";
    EXPECT_EQ(result.error().code, Errc::mismatch) << "rank " << rank;
    EXPECT_THAT(
        result.error().message,
        AllOf(HasSubstr(fmt::format("rank {} called {}", chosen.offender, text_of(chosen.odd))),
              HasSubstr(fmt::format(" called {}", text_of(chosen.usual))), HasSubstr(" as its call 2")))
        << "rank " << rank;
  });
}

TEST(Mismatch, OfOneRankIsAnErrorOnEveryRankInTheSameCall) {
  constexpr std::uint64_t seed = 7;
  Prng random(seed);
  std::uint64_t number = 0;
  for (const Case& chosen : chosen_cases(random)) {
    SCOPED_TRACE(fmt::format("rank {} of {} calls {} instead of {}", chosen.offender, chosen.size,
                             text_of(chosen.odd), text_of(chosen.usual)));
    check(chosen, ++number);
    if (::testing::Test::HasFailure()) return;
  }
}

// One rank has left out the first call that the others make.
TEST(Mismatch, OfTheOrderIsAnErrorOnEveryRank) {
  const Call left_out{}, second{.operation = Operation::broadcast, .count = 4};
  for (const int size : sizes)
    for (int offender = 0; offender < size; ++offender) {
      SCOPED_TRACE(fmt::format("rank {} of {}", offender, size));
      const auto provider = verbs::make_fake_provider();
      TestGroup group(*provider, size);
      ASSERT_TRUE(group.connect());
      group.on_all_ranks([&](int rank) {
        Memory memory;
        const auto result = testing::run(group[rank], memory.with(rank == offender ? second : left_out));
        ASSERT_FALSE(result) << "rank " << rank << " returned success";
        EXPECT_THAT(
            result.error().message,
            AllOf(HasSubstr(fmt::format("rank {} called broadcast(uint8, 4 elements, root 0)", offender)),
                  HasSubstr(" called barrier()"), HasSubstr(" as its call 1")));
      });
    }
}

TEST(Mismatch, OfTheGroupsNameIsAnErrorOnEveryRank) {
  for (const int size : sizes)
    for (int offender = 0; offender < size; ++offender) {
      const auto provider = verbs::make_fake_provider();
      TestGroup group(*provider, size, [&](CommunicatorOptions& options) {
        if (options.rank == Rank{offender}) options.name = "other";
      });
      EXPECT_FALSE(group.connect());
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(group.error(rank).code, Errc::mismatch) << group.error(rank).message;
        EXPECT_THAT(group.error(rank).message, HasSubstr("start all ranks alike"));
      }
    }
}

}  // namespace
}  // namespace beeline::exec
