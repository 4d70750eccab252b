// Every seed of every fuzz target, as it is and with seeded mutations: what can be run
// without libFuzzer, in every build, under every sanitizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include "base/random.h"
#include "targets.h"

namespace beeline::fuzz {
namespace {

struct Target {
  const char* name;
  void (*run)(Bytes);
};
void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }

using Input = std::vector<std::byte>;

std::vector<Input> seeds_of(const std::string& name) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(BEELINE_CORPUS_DIR) + "/" + name))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Input> seeds;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::vector<char> bytes(std::istreambuf_iterator<char>(in), {});
    const auto view = std::as_bytes(std::span(bytes));
    seeds.emplace_back(view.begin(), view.end());
  }
  return seeds;
}

// A few of libFuzzer's own mutations: flip, overwrite, erase, repeat.
void mutate(Prng& prng, Input& input) {
  for (std::uint64_t rounds = 1 + prng.below(6); rounds > 0 && !input.empty(); --rounds) {
    const auto at = static_cast<std::ptrdiff_t>(prng.below(input.size()));
    const auto upto = std::min<std::ptrdiff_t>(at + static_cast<std::ptrdiff_t>(1 + prng.below(8)),
                                               static_cast<std::ptrdiff_t>(input.size()));
    switch (prng.below(4)) {
      case 0:
        input[at] ^= static_cast<std::byte>(1u << prng.below(8));
        break;
      case 1:
        input[at] = static_cast<std::byte>(prng.below(256));
        break;
      case 2:
        input.erase(input.begin() + at, input.begin() + upto);
        break;
      default: {
        const Input piece(input.begin() + at, input.begin() + upto);
        input.insert(input.begin() + at, piece.begin(), piece.end());
      }
    }
  }
}

class Corpus : public testing::TestWithParam<Target> {};

TEST_P(Corpus, EverySeedRuns) {
  const auto seeds = seeds_of(GetParam().name);
  ASSERT_GE(seeds.size(), 5u);
  for (const Input& seed : seeds) GetParam().run(seed);
}

TEST_P(Corpus, EveryPrefixOfEverySeedRuns) {
  for (const Input& seed : seeds_of(GetParam().name))
    for (std::size_t bytes = 0; bytes < seed.size(); bytes += 1 + bytes / 16)
      GetParam().run(Input(seed.begin(), seed.begin() + static_cast<std::ptrdiff_t>(bytes)));
}

TEST_P(Corpus, MutatedSeedsRun) {
  Prng prng(42);
  for (const Input& seed : seeds_of(GetParam().name)) {
    for (int i = 0; i < 200; ++i) {
      Input input = seed;
      mutate(prng, input);
      GetParam().run(input);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Corpus,
                         testing::Values(Target{"wire", fuzz_wire}, Target{"pcap", fuzz_pcap},
                                         Target{"queue_pair", fuzz_queue_pair},
                                         Target{"unreliable", fuzz_unreliable}, Target{"cm", fuzz_cm},
                                         Target{"bootstrap", fuzz_bootstrap}, Target{"exec", fuzz_exec},
                                         Target{"port", fuzz_port}, Target{"local", fuzz_local},
                                         Target{"perf", fuzz_perf}, Target{"doctor_log", fuzz_doctor_log}),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace
}  // namespace beeline::fuzz
