#include "doctor/log/prefix.h"

#include <gtest/gtest.h>

#include <string>

namespace beeline::doctor::log {
namespace {

struct Case {
  const char* text;
  const char* rank;
  const char* host;
  const char* body;
};

TEST(Prefix, OfLaunchersAndLoggers) {
  static constexpr Case cases[] = {
      {"[rank3]: loss 2.5", "3", "", "loss 2.5"},
      {"[default3]:[rank11]:hello", "11", "", "hello"},
      {"[trainer0|3]:hello", "3", "", "hello"},
      {"[1,12]<stderr>:hello", "12", "", "hello"},
      {"Thu Jun 18 14:28:58 2020[1,0]<stdout>:hello", "0", "", "hello"},
      {"[prterun-node1-1234@1,7]<stderr>: hello", "7", "", "hello"},
      {"12: hello", "12", "", "hello"},
      {" 3: hello", "3", "", "hello"},
      {"node7: hello", "", "node7", "hello"},
      {"[pod/trainer-2/pytorch] hello", "", "trainer-2", "hello"},
      {"worker-1  | hello", "", "worker-1", "hello"},
      {"(trainer pid=123, ip=10.0.0.4) hello", "", "10.0.0.4", "hello"},
      {"2026-05-01T10:00:00.123456789Z stderr F hello", "", "", "hello"},
      {"gpu-01:4000:4100 [0] NCCL INFO Using network IB", "", "gpu-01", "NCCL INFO Using network IB"},
      {"3: node7: [2026-05-01 10:00:00] gpu-01:4000:4100 [0] a.cc:7 NCCL WARN x", "3", "gpu-01",
       "a.cc:7 NCCL WARN x"},
      {"[1608298882.555115] [b2294:54275:0]          ib_md.c:1678 UCX  ERROR x", "", "b2294",
       "ib_md.c:1678 UCX  ERROR x"},
      {"[mpi11:04770] pml_ucx.c:212 Error: x", "", "mpi11", "pml_ucx.c:212 Error: x"},
      {"{\"log\":\"[rank2]: hello\\n\",\"stream\":\"stderr\"}", "2", "", "hello "},
      {"May  1 10:00:00 gpu-09 kernel: [12.5] NVRM: Xid", "", "gpu-09", "NVRM: Xid"},
      // Not prefixes.
      {"RuntimeError: x", "", "", "RuntimeError: x"},
      {"mlx5_0: x", "", "", "mlx5_0: x"},
      {"out_of_sequence: 12", "", "", "out_of_sequence: 12"},
      {"[[43213,1],3][a.c:1:f] x", "", "", "[[43213,1],3][a.c:1:f] x"},
      {"train.py:17: x", "", "", "train.py:17: x"},
  };
  for (const Case& one : cases) {
    std::string storage;
    const Line line = take_apart(one.text, 1, storage);
    EXPECT_EQ(line.rank, one.rank) << one.text;
    EXPECT_EQ(line.host, one.host) << one.text;
    EXPECT_EQ(line.body, one.body) << one.text;
  }
}

TEST(Prefix, IndentationOfToolsIsKept) {
  std::string storage;
  EXPECT_EQ(take_apart("     rx_discards_phy: 5", 1, storage).body, "     rx_discards_phy: 5");
}

TEST(Prefix, WritersDiffer) {
  std::string storage;
  const auto stream = [&](const char* text) { return take_apart(text, 1, storage).stream; };
  EXPECT_EQ(stream("hello"), 0u);
  EXPECT_NE(stream("1: hello"), stream("2: hello"));
  EXPECT_EQ(stream("1: hello"), stream("1: world"));
}

TEST(Stamp, OfManyKinds) {
  const auto seconds = [](std::string_view text, Clock clock) {
    const auto stamp = take_stamp(text);
    return stamp && stamp->clock == clock ? stamp->seconds : -1.0;
  };
  const double base = seconds("2026-05-01T10:00:00Z x", Clock::date);
  EXPECT_GT(base, 0);
  for (const char* const same :
       {"2026-05-01 10:00:00,000 x", "[2026-05-01 10:00:00] x", "May  1 10:00:00 host",
        "Fri May  1 10:00:00 2026 x", "[E501 10:00:00.0 a.cpp:1]", "E0501 10:00:00.000000 77 a.py:1]",
        "I20260501 10:00:00.0 x", "2026-05-01T10:00:00+02:00 x"})
    EXPECT_DOUBLE_EQ(seconds(same, Clock::date), base) << same;
  EXPECT_DOUBLE_EQ(seconds("2026-05-01T10:00:01.5Z", Clock::date), base + 1.5);
  EXPECT_DOUBLE_EQ(seconds("[1608298882.5] x", Clock::epoch), 1608298882.5);
  EXPECT_DOUBLE_EQ(seconds("[   12.925245] x", Clock::boot), 12.925245);
  EXPECT_DOUBLE_EQ(seconds("01:02:03 x", Clock::day), 3723);
  for (const char* const none : {"hello", "12345", "E1", "[rank0]", "2026-13-41T10:00:00", "99:99:99", ""}) {
    std::string_view text = none;
    EXPECT_FALSE(take_stamp(text).has_value()) << none;
    EXPECT_EQ(text, none);
  }
}

}  // namespace
}  // namespace beeline::doctor::log
