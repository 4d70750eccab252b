#include "bench/report.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace beeline::bench {
namespace {

using ::testing::HasSubstr;

const Job job{Operation::all_reduce, BEELINE_FLOAT32, BEELINE_SUM, 0, 4};

RunDescription description() {
  return {job, 1000, 1000, 2, 20, 5, true, {{0, 4711, "node-a", "bee0"}, {1, 4712, "node-\xff", "bee1"}}};
}

TEST(Table, HasTheColumnsOfNcclTests) {
  EXPECT_EQ(table_row(job, {1'000'000, 250'000, {1000, 0}, {500, 3}}),
            "     1000000        250000     float     sum      -1     1000    1.00    1.50      0    500.0   "
            " 2.00    3.00 "
            "     3\n");
  const std::string head = table_head(description());
  for (const char* word : {"out-of-place", "in-place", "size", "count", "type", "redop", "root", "time",
                           "algbw", "busbw", "#wrong", "Rank  0 Pid   4711", "bee0"})
    EXPECT_THAT(head, HasSubstr(word));
  std::size_t begin = 0;
  while (begin < head.size()) {  // all of it comments, for whoever plots the rest
    EXPECT_EQ(head[begin], '#');
    begin = head.find('\n', begin) + 1;
  }
}

TEST(Table, SaysWhenNothingIsReducedOrChecked) {
  Job gather = job;
  gather.operation = Operation::all_gather;
  const std::string row = table_row(gather, {1000, 10, {1, std::nullopt}, {1, std::nullopt}});
  EXPECT_THAT(row, HasSubstr(" none "));
  EXPECT_THAT(row, HasSubstr("N/A"));
  Job broadcast = job;
  broadcast.operation = Operation::broadcast;
  broadcast.root = 3;
  EXPECT_THAT(table_row(broadcast, {1000, 10, {1, 0}, {1, 0}}), HasSubstr("  none       3 "));
}

TEST(Table, EndsWithTheTrailersOfNcclTests) {
  const std::vector<Row> rows{{1'000'000, 250'000, {1000, 0}, {500, 0}}};
  EXPECT_THAT(table_tail(job, rows),
              HasSubstr("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 2.25\n"));
  const std::vector<Row> bad{{1'000'000, 250'000, {1000, 2}, {500, 1}}};
  EXPECT_THAT(table_tail(job, bad), HasSubstr("# Out of bounds values : 3 FAILED\n"));
  EXPECT_EQ(total_wrong(bad), 3u);
}

TEST(Json, IsTheInterfaceThatProgramsRead) {
  const std::vector<Row> rows{{1'000'000, 250'000, {1000, 0}, {500, std::nullopt}}};
  const auto json = nlohmann::json::parse(to_json(description(), rows));
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["environment"]["ranks"], 4);
  EXPECT_EQ(json["environment"]["participants"][0]["device"], "bee0");
  ASSERT_EQ(json["results"].size(), 1u);
  const auto& result = json["results"][0];
  EXPECT_EQ(result["bytes"], 1'000'000);
  EXPECT_EQ(result["count"], 250'000);
  EXPECT_EQ(result["dtype"], "float");
  EXPECT_EQ(result["redop"], "sum");
  EXPECT_EQ(result["out_of_place"]["time_us"], 1000.0);
  EXPECT_EQ(result["out_of_place"]["algbw_GBps"], 1.0);
  EXPECT_EQ(result["out_of_place"]["busbw_GBps"], 1.5);
  EXPECT_EQ(result["out_of_place"]["wrong"], 0);
  EXPECT_TRUE(result["in_place"]["wrong"].is_null());
}

TEST(Json, AFileThatCannotBeWrittenIsNamed) {
  EXPECT_THAT(write_file("/nonexistent/results.json", "x").error().message,
              HasSubstr("/nonexistent/results.json"));
}

}  // namespace
}  // namespace beeline::bench
