// Tables and JSON.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "perf/json.h"
#include "perf/table.h"

namespace beeline::perf {
namespace {

Agreement some_agreement(const char* test) {
  Agreement agreement;
  Options options;
  options.test = find_test(test);
  agreement.plan = make_plan(options).value();
  agreement.device = "bee0";
  agreement.provider = "soft";
  agreement.mtu_bytes = agreement.local_mtu_bytes = 1024;
  agreement.remote_mtu_bytes = 4096;
  agreement.local = {Gid::v4(10, 0, 0, 1), 1024, 16, {{0x11, 0x22, 0x33, 0x1000, 0x2000}}};
  agreement.remote = {Gid::v4(10, 0, 0, 2), 4096, 16, {{0x12, 0x23, 0x34, 0x3000, 0x4000}}};
  return agreement;
}

Row bandwidth_row() {
  Row row;
  row.bytes = 65536;
  row.iterations = 5000;
  row.bandwidth = BandwidthResult{2e9, 3e9, 30517.578125};
  return row;
}

Row latency_row() {
  Row row;
  row.bytes = 2;
  row.iterations = 1000;
  row.latency = LatencySummary{1000, 1.25, 9.5, 2.5, 0.5, 2.25, 4.75, 8.5};
  return row;
}

TEST(Table, HasPerftestsColumns) {
  const std::string bandwidth = header_text(some_agreement("write_bw"), false);
  EXPECT_NE(
      bandwidth.find(" #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n"),
      std::string::npos)
      << bandwidth;
  EXPECT_NE(header_text(some_agreement("write_bw"), true).find("BW peak[Gb/sec]    BW average[Gb/sec]"),
            std::string::npos);
  EXPECT_NE(header_text(some_agreement("send_lat"), false)
                .find(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    "
                      "t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]"),
            std::string::npos);
}

TEST(Table, SaysWhatWasAgreed) {
  const std::string text = header_text(some_agreement("write_bw"), false);
  for (const char* part : {"RDMA_Write BW Test", "Device         : bee0",
                           "Mtu             : 1024[B] (agreed: 1024 here, 4096 there)",
                           "Link type       : Ethernet", "local address: LID 0000 QPN 0x000011 PSN 0x000022",
                           "GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:02 (10.0.0.2)",
                           "messages of 65536, 5000 iterations"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in\n" << text;
}

std::vector<double> numbers(const std::string& text) {
  std::vector<double> values;
  std::istringstream in(text);
  for (double value; in >> value;) values.push_back(value);
  return values;
}

TEST(Table, RowsCarryTheNumbersInTheirUnits) {
  EXPECT_EQ(numbers(row_text(bandwidth_row(), false)),
            (std::vector<double>{65536, 5000, 2861.02, 1907.35, 0.030518}));
  EXPECT_EQ(numbers(row_text(bandwidth_row(), true)), (std::vector<double>{65536, 5000, 24, 16, 0.030518}));
  EXPECT_EQ(numbers(row_text(latency_row(), false)),
            (std::vector<double>{2, 1000, 1.25, 9.5, 2.25, 2.5, 0.5, 4.75, 8.5}));
}

TEST(Table, RowsSayWhatCheckingFound) {
  Row row = bandwidth_row();
  row.verdict = {1000, 0, ""};
  EXPECT_NE(row_text(row, false).find("checked 1000 bytes: all right"), std::string::npos);
  row.verdict = {1000, 3, "iteration 7"};
  EXPECT_NE(row_text(row, false).find("3 WRONG, first at iteration 7"), std::string::npos);
}

TEST(JsonOutput, IsTheDocumentedInterface) {
  Report report{some_agreement("write_bw"), "wire", {bandwidth_row(), latency_row()}};
  report.rows[0].verdict = {1000, 3, "x"};
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["environment"]["device"], "bee0");
  EXPECT_EQ(json["environment"]["test"], "write_bw");
  EXPECT_EQ(json["environment"]["lane"], "wire");
  ASSERT_EQ(json["results"].size(), 2u);
  const auto& bandwidth = json["results"][0];
  EXPECT_EQ(bandwidth["bytes"], 65536);
  EXPECT_EQ(bandwidth["iterations"], 5000);
  EXPECT_EQ(bandwidth["bandwidth_GBps"], 2.0);
  EXPECT_DOUBLE_EQ(bandwidth["message_rate_Mpps"], 0.030517578125);
  EXPECT_EQ(bandwidth["check"]["wrong"], 3);
  EXPECT_FALSE(bandwidth.contains("latency_us"));
  const auto& latency = json["results"][1]["latency_us"];
  EXPECT_EQ(latency["min"], 1.25);
  EXPECT_EQ(latency["median"], 2.25);
  EXPECT_EQ(latency["p99"], 4.75);
  EXPECT_EQ(latency["p999"], 8.5);
  EXPECT_FALSE(json["results"][1].contains("bandwidth_GBps"));
}

TEST(JsonOutput, SurvivesNamesThatAreNotText) {
  Report report;
  report.agreement = some_agreement("write_bw");
  report.agreement.device = "bee\xFF\"\\";
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_FALSE(json["environment"].contains("lane")) << "nobody counted";
}

}  // namespace
}  // namespace beeline::perf
