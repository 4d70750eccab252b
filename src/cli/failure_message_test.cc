#include "cli/failure_message.h"

#include <gmock/gmock.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/checks.h"
#include "cli/commands.h"

namespace beeline::cli {
namespace {

using ::testing::HasSubstr;

// What the words are refused with, as the program prints it.
std::string refusal(const std::string& line) {
  std::vector<std::string> words;  // the last one first, as CLI11 takes them
  std::istringstream in(line);
  for (std::string word; in >> word;) words.insert(words.begin(), word == "''" ? "" : word);
  CLI::App app{"test"};
  app.name("beeline");
  app.require_subcommand(1);
  app.failure_message(failure_message);
  add_devices(app);
  add_perf(app);
  add_bench(app);
  add_doctor(app);
  std::ostringstream out, error;
  try {
    app.parse(std::move(words));
  } catch (const CLI::Error& refused) {
    EXPECT_NE(app.exit(refused, out, error), 0) << line;
  }
  return error.str();
}

TEST(FailureMessage, NamesAnUnknownCommandAndWhatThereIs) {
  EXPECT_EQ(refusal("foo"),
            "beeline: beeline has no command 'foo'; there are: devices, perf, bench, doctor (see beeline "
            "--help)\n");
  EXPECT_EQ(refusal("--foo"),
            "beeline: beeline has no command '--foo'; there are: devices, perf, bench, doctor (see beeline "
            "--help)\n");
  EXPECT_THAT(refusal("perf dance"), HasSubstr("beeline perf has no command 'dance'; there are: write_bw, "));
}

TEST(FailureMessage, SaysThatACommandIsMissing) {
  EXPECT_EQ(refusal(""),
            "beeline: beeline takes a command: devices, perf, bench, doctor (see beeline --help)\n");
  EXPECT_THAT(refusal("perf"), HasSubstr("beeline perf takes a command: write_bw, "));
}

TEST(FailureMessage, NamesWhatACommandDoesNotExpect) {
  EXPECT_THAT(refusal("devices foo"), HasSubstr("foo (see beeline devices --help)\n"));
  EXPECT_THAT(refusal("perf write_bw --fast"), HasSubstr("--fast (see beeline perf write_bw --help)\n"));
}

TEST(FailureMessage, AnOptionOutOfItsRangeNamesTheRange) {
  const struct {
    const char* words;
    const char* said;
  } cases[] = {
      {"perf write_bw -p 70000", "--port: '70000' is no number from 1 to 65535"},
      {"perf write_bw -p 0", "--port: '0' is no number from 1 to 65535"},
      {"perf write_bw -q -1", "--qp: '-1' is no number from 1 to 1024"},
      {"perf write_bw -t 16385", "--tx-depth: '16385' is no number from 1 to 16384"},
      {"perf write_bw -x 256", "--gid-index: '256' is no number from 0 to 255"},
      {"perf write_bw -i 0", "--ib-port: '0' is no number from 1 to 255"},
      {"perf write_bw -m many", "--mtu: 'many' is no number from 256 to 4096"},
      {"perf write_bw -n 99999999999999999999", "is no number from 1 to 1099511627776"},
      {"perf write_bw -D nan", "--duration: 'nan' is no number from 0 to 604800"},
      {"bench all_reduce -n 1e3", "--iters: '1e3' is no number from 1 to 1000000"},
      {"bench all_reduce -w -1", "--warmup_iters: '-1' is no number from 0 to 1000000"},
      {"bench all_reduce -f -1", "--stepfactor: '-1' is no number from 1 to "},
      {"bench all_reduce -c 2", "--check: '2' is no number from 0 to 1"},
      {"bench broadcast -r -1", "--root: '-1' is no number from 0 to 1048575"},
      {"bench all_reduce --ranks 1025", "--ranks: '1025' is no number from 1 to 1024"},
      {"bench all_reduce --rank -1", "--rank: '-1' is no number from 0 to "},
      {"bench all_reduce --size 0", "--size: '0' is no number from 1 to "},
      {"bench all_reduce -T inf", "--timeout: 'inf' is no number from 0.001 to 1000000"},
      {"doctor --peer a --port 0", "--port: '0' is no number from 1 to 65535"},
      {"doctor --listen 65536", "--listen: '65536' is no number from 1 to 65535"},
  };
  for (const auto& test : cases) EXPECT_THAT(refusal(test.words), HasSubstr(test.said)) << test.words;
}

TEST(FailureMessage, AnEmptyWordIsNotTheDefault) {
  for (const char* words :
       {"perf write_bw ''", "perf write_bw --loopback -d ''", "perf write_bw --json ''",
        "bench all_reduce --device ''", "bench all_reduce --json ''", "bench all_reduce --rendezvous ''"})
    EXPECT_THAT(refusal(words), HasSubstr("is empty (see beeline ")) << words;
}

}  // namespace
}  // namespace beeline::cli
