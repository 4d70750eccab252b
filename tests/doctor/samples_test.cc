// Every sample log gives what the table says.
#include "samples.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

namespace beeline::doctor::log {
namespace {

class EverySample : public testing::TestWithParam<Sample> {};

TEST_P(EverySample, GivesTheExpectedDiagnosis) {
  const Diagnosis diagnosis = diagnose_text(GetParam().text, GetParam().file);
  EXPECT_EQ(disagreement(GetParam(), diagnosis), "") << render(diagnosis, false);
}

// Also the logs of the blind sets, whatever the reader makes of them.
class EveryLog : public testing::TestWithParam<Sample> {};

TEST_P(EveryLog, IsShownInFewLines) {
  const std::string text = render(diagnose_text(GetParam().text), false);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 25) << text;
}

// Each piece of evidence is a line of the log, and where it says it is.
TEST_P(EveryLog, EvidenceIsInTheLog) {
  std::vector<std::string> lines;
  std::istringstream in(GetParam().text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  for (const Finding& finding : diagnose_text(GetParam().text).findings) {
    ASSERT_FALSE(finding.evidence.empty());
    for (const Evidence& evidence : finding.evidence) {
      ASSERT_GE(evidence.line, 1u);
      ASSERT_LE(evidence.line, lines.size());
      const std::string& line = lines[evidence.line - 1];
      const std::string start = evidence.text.substr(0, evidence.text.find_first_of(" \\"));
      EXPECT_NE(line.find(start), std::string::npos) << evidence.text;
    }
    EXPECT_FALSE(finding.next.empty());
    EXPECT_FALSE(finding.source.empty());
  }
}

std::string name_of(const testing::TestParamInfo<Sample>& sample) {
  std::string name = sample.param.file.substr(0, sample.param.file.find('.'));
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Logs, EverySample, testing::ValuesIn(read_samples(BEELINE_LOGS)), name_of);
INSTANTIATE_TEST_SUITE_P(Logs, EveryLog, testing::ValuesIn(read_samples(BEELINE_LOGS)), name_of);
INSTANTIATE_TEST_SUITE_P(Blind, EveryLog, testing::ValuesIn(read_samples(BEELINE_BLIND)), name_of);
INSTANTIATE_TEST_SUITE_P(Blind2, EveryLog, testing::ValuesIn(read_samples(BEELINE_BLIND "2")), name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryLog);

TEST(Samples, CoverManyKindsAndManyHealthyLogs) {
  std::set<std::string> failing;
  int healthy = 0;
  for (const Sample& sample : read_samples(BEELINE_LOGS)) {
    if (sample.kind == "-") ++healthy;
    if (sample.kind != "-") failing.insert(sample.kind);
    EXPECT_FALSE(sample.text.empty()) << sample.file;
  }
  EXPECT_GE(failing.size(), 30u);
  EXPECT_GE(healthy, 30);
}

TEST(Diagnose, AnUnknownLogIsNotGuessedAt) {
  const Diagnosis diagnosis = diagnose_text("frobnicator: the quux is misaligned, giving up (code 7)\nbye\n");
  EXPECT_TRUE(diagnosis.nothing_known());
  EXPECT_NE(render(diagnosis, false).find("nothing known in here"), std::string::npos);
  EXPECT_EQ(to_json(diagnosis)["findings"].size(), 0u);
  EXPECT_FALSE(worst(diagnosis).has_value());
}

TEST(Diagnose, JsonSaysWhatTheTextSays) {
  const auto json = to_json(diagnose_text(
      "3: node7:1:2 [0] a.cc:1 NCCL WARN NET/IB : Got completion from peer 10.0.0.7<1> with status=12 "
      "opcode=0 len=0 vendor err 129\n"));
  ASSERT_EQ(json["findings"].size(), 1u);
  const auto& finding = json["findings"][0];
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["claim"], "first-seen");
  EXPECT_EQ(finding["kind"], "completion-12");
  EXPECT_EQ(finding["rank"], "3");
  EXPECT_EQ(finding["host"], "node7");
  EXPECT_EQ(finding["peer"], "10.0.0.7<1>");
  EXPECT_EQ(finding["severity"], "failure");
  EXPECT_EQ(finding["evidence"][0]["line"], 1);
}

// Two hosts' files, without a clock: the reason goes before what follows from it.
TEST(Diagnose, AcrossFilesTheKernelsReasonGoesFirst) {
  const Source sources[] = {
      {"node1.log",
       "node1:1:2 [0] a.cc:1 NCCL WARN NET/IB : Got completion from peer 10.0.0.7<1> with status=12 opcode=0 "
       "len=0 vendor err 129\n"},
      {"node2.log", "node2:1:2 [0] a.cc:1 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error\n"}};
  const Diagnosis diagnosis = diagnose(sources);
  EXPECT_EQ(first_kind(diagnosis), "port-error");
  EXPECT_EQ(diagnosis.findings.front().evidence.front().source, "node2.log");
}

TEST(Diagnose, CountersOfDifferentHostsAreNotCompared) {
  const std::string one = "NIC statistics:\n rx_discards_phy: 5\n rx_prio3_pause: 0\n",
                    two = "NIC statistics:\n rx_discards_phy: 900\n rx_prio3_pause: 0\n";
  const Source hosts[] = {{"node1.txt", one}, {"node2.txt", two}};
  EXPECT_TRUE(diagnose(hosts).nothing_known());
  const Source looks[] = {{"node1-before.txt", one}, {"node1-after.txt", two}};
  EXPECT_EQ(first_kind(diagnose(looks)), "loss-without-pfc");
}

}  // namespace
}  // namespace beeline::doctor::log
