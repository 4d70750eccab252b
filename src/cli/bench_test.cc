// The command itself: what it refuses, and that a run's table and JSON come out of real ranks.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "cli/commands.h"

namespace beeline::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int status = 0;
  std::string out, error;
};

// Parses and runs the words in this process, so only such as end before ranks are started.
Outcome refuse(const std::string& words) {
  CLI::App app{"test"};
  add_bench(app);
  Outcome outcome;
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  try {
    app.parse(words);
  } catch (const CLI::Error& error) {
    outcome.status = app.exit(error);
  }
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.error = ::testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(BenchCommand, RefusesNonsenseInOneSentence) {
  const struct {
    const char* words;
    const char* said;
  } cases[] = {
      {"bench", "operation is required"},
      {"bench all_to_none", "all_to_none"},
      {"bench all_reduce --ranks 2 -b 1X", "'1X' is no size"},
      {"bench all_reduce --ranks 2 -b 2M -e 1M", "exceeds the largest"},
      {"bench all_reduce --ranks 2 -b 1 -e 2 -f 1", "a factor of at least 2"},
      {"bench all_reduce --ranks 2 -d half", "'half' is no type"},
      {"bench all_reduce --ranks 2 -o prod", "'prod' is no reduce operation"},
      {"bench broadcast --ranks 2 -r 2", "there are only 2 ranks, 0 … 1"},
      {"bench all_reduce --ranks 0", "--ranks"},
      {"bench all_reduce --ranks 300 -d bfloat16", "not exact in bfloat16"},
      {"bench all_reduce --ranks 2 --rank 1", "leave out --rank"},
      {"bench all_reduce --rank 1 --size 2", "go together"},
      {"bench all_reduce --rank 0 --size 2 --rendezvous nowhere", "'nowhere' is no meeting point"},
      {"bench all_reduce --ranks 2 -n 0", "--iters"},
  };
  for (const auto& test : cases) {
    const Outcome outcome = refuse(test.words);
    EXPECT_NE(outcome.status, 0) << test.words;
    EXPECT_THAT(outcome.error, HasSubstr(test.said)) << test.words;
  }
}

}  // namespace
}  // namespace beeline::cli
