// Every collective against a plain loop, bit for bit: all types, reductions and group sizes,
// in place and not, over a fake fabric.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "exec/kernels/kernels.h"
#include "exec/limits.h"
#include "exec/test_group.h"

namespace beeline::exec {
namespace {

using coll::Operation;
using testing::TestGroup;

using Buffer = std::vector<std::byte>;

// What a rank contributes: depends on rank, index and case. Numbers whose sum depends on
// the order of the operands.
Buffer contribution(DType dtype, std::size_t count, int rank, std::uint64_t seed) {
  Prng random(seed * 64 + static_cast<std::uint64_t>(rank));
  Buffer data(count * element_bytes(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = random.next();
    const float number = (static_cast<float>(bits >> 40) - 0x1p23f) * (random.chance(0.5) ? 1e-3f : 1e2f);
    if (dtype == DType::float32) std::memcpy(&bits, &number, 4);
    if (dtype == DType::bfloat16) std::memcpy(&bits, reinterpret_cast<const std::byte*>(&number) + 2, 2);
    std::memcpy(data.data() + i * element_bytes(dtype), &bits, element_bytes(dtype));
  }
  return data;
}

struct Case {
  Operation operation = Operation::barrier;
  DType dtype = DType::uint8;
  RedOp redop = RedOp::sum;
  std::size_t count = 0;
  int root = 0;
  bool in_place = false;
  std::uint64_t seed = 0;
};

std::string text(const Case& c, int size, int rank) {
  return fmt::format("{} {} {} count {} root {} {} on rank {} of {}", coll::name(c.operation), name(c.dtype),
                     name(c.redop), c.count, c.root, c.in_place ? "in place" : "out of place", rank, size);
}

// Chunk c is folded from the left, beginning with rank c+1.
Buffer reduced(const Case& c, int size, std::size_t total) {
  const std::size_t element = element_bytes(c.dtype);
  std::vector<Buffer> inputs;
  inputs.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) inputs.push_back(contribution(c.dtype, total, rank, c.seed));
  Buffer result(total * element);
  for (int chunk = 0; chunk < size; ++chunk) {
    const auto range =
        coll::chunk_range(total, static_cast<std::uint32_t>(size), static_cast<std::uint32_t>(chunk));
    const auto part = [&](int rank) {
      return inputs[static_cast<std::size_t>(rank)].data() + range.begin * element;
    };
    std::byte* const out = result.data() + range.begin * element;
    if (range.size() == 0) continue;
    std::memcpy(out, part((chunk + 1) % size), range.size() * element);
    for (int k = 2; k <= size; ++k)
      reduce(c.dtype, c.redop, out, part((chunk + k) % size), out, range.size());
    if (c.redop == RedOp::avg) divide(c.dtype, out, range.size(), size);
  }
  return result;
}

Buffer expected(const Case& c, int size, int rank) {
  const auto ranks = static_cast<std::size_t>(size);
  const std::size_t block = c.count * element_bytes(c.dtype);
  switch (c.operation) {
    case Operation::all_reduce:
      return reduced(c, size, c.count);
    case Operation::reduce_scatter: {
      const Buffer all = reduced(c, size, c.count * ranks);
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(block) * rank;
      return Buffer(begin, begin + static_cast<std::ptrdiff_t>(block));
    }
    case Operation::all_gather: {
      Buffer all;
      for (int from = 0; from < size; ++from) {
        const Buffer part = contribution(c.dtype, c.count, from, c.seed);
        all.insert(all.end(), part.begin(), part.end());
      }
      return all;
    }
    case Operation::broadcast:
      return contribution(c.dtype, c.count, c.root, c.seed);
    case Operation::barrier:
      return {};
  }
  return {};
}

// The caller's memory on one rank, with guards around the output and a copy of the input.
struct Memory {
  static constexpr std::size_t guard = 64;
  Buffer send, receive;
  Buffer original;
  std::size_t result_offset = guard, result_bytes = 0;
  Call call;
};

Memory prepare(const Case& c, int size, int rank) {
  const auto ranks = static_cast<std::size_t>(size);
  const std::size_t block = c.count * element_bytes(c.dtype), own = block * static_cast<std::size_t>(rank);
  const std::size_t send_count = c.operation == Operation::reduce_scatter ? c.count * ranks : c.count;
  Memory m;
  m.original = contribution(c.dtype, send_count, rank, c.seed);
  m.result_bytes = c.operation == Operation::all_gather ? block * ranks : block;
  const std::size_t space = std::max(m.result_bytes, m.original.size());
  m.receive.assign(space + 2 * Memory::guard, std::byte{0xEE});
  m.call = {
      .operation = c.operation, .count = c.count, .dtype = c.dtype, .redop = c.redop, .root = Rank{c.root}};
  std::byte* const inside = m.receive.data() + Memory::guard;
  if (c.in_place) {
    const bool gather = c.operation == Operation::all_gather,
               scatter = c.operation == Operation::reduce_scatter;
    std::copy(m.original.begin(), m.original.end(), inside + (gather ? own : 0));
    if (scatter) m.result_offset += own;
    m.call.send = inside + (gather ? own : 0);
    m.call.receive = inside + (scatter ? own : 0);
  } else {
    m.send = m.original;
    m.call.send = m.send.data();
    m.call.receive = inside;
  }
  if (c.operation == Operation::broadcast && c.root != rank && !c.in_place) m.call.send = nullptr;
  return m;
}

void check(const Case& c, const Memory& m, int size, int rank) {
  const Buffer want = expected(c, size, rank);
  ASSERT_EQ(want.size(), c.operation == Operation::barrier ? 0 : m.result_bytes);
  ASSERT_TRUE(
      std::equal(want.begin(), want.end(), m.receive.begin() + static_cast<std::ptrdiff_t>(m.result_offset)))
      << text(c, size, rank);
  for (std::size_t i = 0; i < Memory::guard; ++i) {
    ASSERT_EQ(m.receive[i], std::byte{0xEE}) << text(c, size, rank);
    ASSERT_EQ(m.receive[m.receive.size() - 1 - i], std::byte{0xEE}) << text(c, size, rank);
  }
  if (!c.in_place) {
    ASSERT_EQ(m.send, m.original) << "the input changed: " << text(c, size, rank);
  }
}

std::vector<Case> all_cases(int size, const std::vector<std::size_t>& counts) {
  std::vector<Case> cases;
  const auto add = [&](Case c) {
    c.seed = cases.size();
    cases.push_back(c);
  };
  for (const bool in_place : {false, true})
    for (const std::size_t count : counts) {
      for (const DType dtype : {DType::float32, DType::bfloat16, DType::int32, DType::int64, DType::uint8}) {
        for (const RedOp redop : {RedOp::sum, RedOp::max, RedOp::avg})
          for (const Operation operation : {Operation::all_reduce, Operation::reduce_scatter})
            add({operation, dtype, redop, count, 0, in_place, 0});
        add({Operation::all_gather, dtype, RedOp::sum, count, 0, in_place, 0});
        add({Operation::broadcast, dtype, RedOp::sum, count, static_cast<int>(count) % size, in_place, 0});
      }
      add({Operation::barrier});
    }
  return cases;
}

void run_cases(TestGroup& group, const std::vector<Case>& cases) {
  group.on_all_ranks([&](int rank) {
    for (const Case& c : cases) {
      Memory memory = prepare(c, group.size(), rank);
      const auto result = testing::run(group[rank], memory.call);
      ASSERT_TRUE(result) << text(c, group.size(), rank) << ": " << result.error().message;
      ASSERT_NO_FATAL_FAILURE(check(c, memory, group.size(), rank));
    }
  });
}

using Delivery = verbs::FakeOptions::Delivery;

class Collectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Collectives, ::testing::Range(1, 6));

TEST_P(Collectives, SmallCounts) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, GetParam());
  ASSERT_TRUE(group.connect());
  run_cases(group, all_cases(GetParam(), {0, 1, 2, 3, 7, 1000}));
}

// Larger groups, in which small calls go from rank to rank in rounds.
class LargerGroups : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, LargerGroups, ::testing::Range(6, 10));

TEST_P(LargerGroups, SmallCounts) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, GetParam());
  ASSERT_TRUE(group.connect());
  run_cases(group, all_cases(GetParam(), {0, 1, 31}));
}

// One operation for each type, and every one for one.
std::vector<Case> some_cases(int size, const std::vector<std::size_t>& counts) {
  std::vector<Case> cases = all_cases(size, counts);
  std::erase_if(cases, [](const Case& c) {
    return c.dtype == DType::float32 ? c.redop != RedOp::sum : c.redop != RedOp::avg || !c.in_place;
  });
  return cases;
}

// Around the most that travels as a parcel, so that small and large calls take turns.
TEST_P(Collectives, CountsAroundALargeParcel) {
  const auto provider =
      verbs::make_fake_provider({.devices = {verbs::FakeDevice{}}, .delivery = Delivery::threaded});
  TestGroup group(*provider, GetParam());
  ASSERT_TRUE(group.connect());
  const std::size_t most = parcel_bytes(GetParam());
  run_cases(group, all_cases(GetParam(), {most / 8, most / 4, most / 4 + 1, most, 9}));
}

// Hundreds of pieces, several at a time, delivered by another thread.
TEST_P(Collectives, ManyPieces) {
  const auto provider =
      verbs::make_fake_provider({.devices = {verbs::FakeDevice{}}, .delivery = Delivery::threaded});
  TestGroup group(*provider, GetParam(), [](CommunicatorOptions& options) { options.piece_bytes = 256; });
  ASSERT_TRUE(group.connect());
  run_cases(group, all_cases(GetParam(), {5, 20003}));
}

TEST_P(Collectives, LargeCounts) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, GetParam(),
                  [](CommunicatorOptions& options) { options.piece_bytes = 16 * 1024; });
  ASSERT_TRUE(group.connect());
  const std::vector<Case> cases = some_cases(GetParam(), {100003});
  run_cases(group, cases);
  EXPECT_EQ(group[0].stats().operations, cases.size());
}

// A device that takes nothing inline, so that messages leave from their registered slots.
TEST(CollectivesOnOtherDevices, WithoutInlineData) {
  const auto provider = verbs::make_fake_provider(
      {.devices = {verbs::FakeDevice{}}, .delivery = Delivery::threaded, .max_inline_bytes = 0});
  TestGroup group(*provider, 3);
  ASSERT_TRUE(group.connect()) << group.error(0).message;
  run_cases(group, all_cases(3, {1, 1000}));
}

// Ranks submit everything at once and drift apart; each waits in an order of its own.
TEST(CollectivesAsynchronously, InterleavedSubmissions) {
  const auto provider =
      verbs::make_fake_provider({.devices = {verbs::FakeDevice{}}, .delivery = Delivery::threaded});
  TestGroup group(*provider, 4, [](CommunicatorOptions& options) { options.piece_bytes = 1024; });
  ASSERT_TRUE(group.connect());
  std::vector<Case> cases = all_cases(4, {0, 3, 700});
  for (const Case& large : some_cases(4, {20001})) cases.push_back(large);
  Prng shuffle(7);
  for (std::size_t i = cases.size(); i > 1; --i) std::swap(cases[i - 1], cases[shuffle.below(i)]);
  group.on_all_ranks([&](int rank) {
    Prng random(static_cast<std::uint64_t>(rank) + 99);
    std::vector<Memory> memory;
    memory.reserve(cases.size());
    for (const Case& c : cases) memory.push_back(prepare(c, 4, rank));
    std::vector<std::shared_ptr<Work>> works;
    std::atomic<std::size_t> called{0};
    for (std::size_t i = 0; i < cases.size(); ++i) {
      works.push_back(group[rank].submit(memory[i].call).value());
      works.back()->on_done([&called](const Result<void>& result) { called += result.has_value(); });
      if (random.chance(0.05)) {
        ASSERT_TRUE(works[random.below(works.size())]->wait(60s));
      }
    }
    for (std::size_t i = 0; i < cases.size(); ++i) {
      ASSERT_TRUE(works[i]->wait(60s));
      ASSERT_NO_FATAL_FAILURE(check(cases[i], memory[i], 4, rank));
    }
    for (int patience = 0; called != cases.size() && patience < 60000; ++patience)
      std::this_thread::sleep_for(1ms);
    EXPECT_EQ(called, cases.size());
  });
}

TEST(CollectivesAsynchronously, WaitGivesUpButTheCallRunsOn) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 2);
  ASSERT_TRUE(group.connect());
  const auto first = group[0].submit({}).value();
  const auto waited = first->wait(20ms);
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, Errc::timed_out);
  EXPECT_FALSE(first->done());
  ASSERT_TRUE(testing::run(group[1], {}));
  EXPECT_TRUE(first->wait(60s));
  bool at_once = false;
  first->on_done([&](const Result<void>& result) { at_once = result.has_value(); });
  EXPECT_TRUE(at_once);
}

}  // namespace
}  // namespace beeline::exec
