// What a small collective costs above verbs, and what its fingerprint costs. Two ranks on one thread over
// the fake provider, so that nobody ever waits and instructions can be counted:
//
//   valgrind --tool=callgrind --callgrind-out-file=small.out build/bin/exec_benchmark
//   callgrind_annotate --inclusive=yes small.out | grep -E "(all_reduce|fingerprint)_of"
//
// Each function does its work `repetitions` times. See docs/performance.md.

#include <benchmark/benchmark.h>

#include <array>
#include <cstdlib>

#include "exec/connections/mailbox.h"
#include "exec/small/header.h"
#include "exec/test_group.h"

namespace beeline::exec {
namespace {

constexpr int repetitions = 20000;

Call call_of(std::array<float, 2>& data) {
  return {.operation = coll::Operation::all_reduce,
          .send = data.data(),
          .receive = data.data(),
          .count = data.size(),
          .dtype = DType::float32};
}

// Rank 0 submits, rank 1 finds the parcel and returns, rank 0 finds the answer.
[[gnu::noinline]] void all_reduce_of(testing::TestGroup& group, std::array<float, 2>& a,
                                     std::array<float, 2>& b) {
  const auto work = group[0].submit(call_of(a));
  if (!work || !group[1].run(call_of(b)) || !(*work)->wait(60s)) std::abort();
}

void small_all_reduce(benchmark::State& state) {
  const auto provider = verbs::make_fake_provider();
  testing::TestGroup group(*provider, 2);
  if (!group.connect()) std::abort();
  std::array<float, 2> a{}, b{};
  for (auto _ : state) all_reduce_of(group, a, b);
}
BENCHMARK(small_all_reduce)->Iterations(repetitions);

// All that a build without fingerprints would not do in a call of two ranks: describe the call, write the
// description into a letter, compare the one that came.
[[gnu::noinline]] bool fingerprint_of_call(const Call& call, std::uint64_t sequence, MessageBuffer& header,
                                           std::byte* slot, const std::byte* arrived_end) {
  const Fingerprint fingerprint = fingerprint_of(call, sequence, 7);
  benchmark::DoNotOptimize(fingerprint);
  store_sequence(header, sequence);
  std::memcpy(slot, header.data(), postmark_bytes);
  return same_header(arrived_end - postmark_bytes, header);
}

void fingerprint(benchmark::State& state) {
  std::array<float, 2> data{};
  const Call call = call_of(data);
  MessageBuffer header = encode({.kind = MessageKind::parcel, .call = fingerprint_of(call, 0, 7)});
  // Every letter that is sent arrives.
  std::array<std::byte, postmark_bytes> letter{};
  std::memcpy(letter.data(), header.data(), postmark_bytes);
  std::uint64_t sequence = 0;
  for (auto _ : state) {
    ++sequence;
    store_be64(letter.data() + postmark_bytes - sizeof sequence, sequence);
    if (!fingerprint_of_call(call, sequence, header, letter.data(), letter.data() + letter.size()))
      std::abort();
  }
}
BENCHMARK(fingerprint)->Iterations(repetitions);

}  // namespace
}  // namespace beeline::exec

BENCHMARK_MAIN();
