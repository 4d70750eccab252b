// Recordings of real hosts are judged as the hosts themselves were.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "doctor/host/recording.h"
#include "doctor/host/report.h"

namespace beeline::doctor {
namespace {

using Judgements = std::map<std::string, std::string>;  // of each check

Judgements as_live(const std::string& table) {
  Judgements all;
  std::ifstream file(table);
  for (std::string check, status; file >> check >> status;) all[check] = status;
  return all;
}

Judgements as_recorded(Evidence& host) {
  Judgements all;
  for (const auto& result : examine_host(host, *choose_checks("")).results)
    all[std::string(result.check->id)] = name(result.status);
  return all;
}

TEST(Recordings, AreJudgedAsTheHostsWere) {
  std::size_t hosts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(BEELINE_RECORDINGS)) {
    const std::string path = entry.path();
    const auto end = path.rfind(".tar.zst");
    if (end == path.npos) continue;
    ++hosts;
    const auto host = open_root(path);
    ASSERT_TRUE(host) << host.error().message;
    const Judgements live = as_live(path.substr(0, end) + ".live.tsv");
    EXPECT_GE(live.size(), 50u) << path;
    EXPECT_EQ(as_recorded(**host), live) << path;
  }
  EXPECT_GE(hosts, 2u);
}

// Nothing of the machine: the name is another, and what a recording must not hold is not in it.
TEST(Recordings, NameNobody) {
  for (const auto& entry : std::filesystem::directory_iterator(BEELINE_RECORDINGS)) {
    if (entry.path().extension() != ".zst") continue;
    const auto readings = read_recording(entry.path());
    ASSERT_TRUE(readings) << readings.error().message;
    EXPECT_EQ(readings->at({Kind::fact, "hostname"}).value, "host-1") << entry.path();
    for (const auto& [question, reading] : *readings) {
      EXPECT_EQ(without_secrets(reading.value), reading.value) << entry.path() << " " << question.name;
      for (const char* const folder : {"/home/", "/root/", "/tmp/"})
        EXPECT_EQ(reading.value.find(folder), std::string::npos) << entry.path() << " " << question.name;
    }
  }
}

}  // namespace
}  // namespace beeline::doctor
