// What must hold for every log: cut off, mixed with others, behind prefixes, in pieces, hostile.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/random.h"
#include "samples.h"

namespace beeline::doctor::log {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// Of all sets, also those that were written blind.
std::vector<Sample> all_samples() {
  std::vector<Sample> all = read_samples(BEELINE_LOGS);
  for (const char* const folder : {BEELINE_BLIND, BEELINE_BLIND "2"})
    for (Sample& sample : read_samples(folder)) all.push_back(std::move(sample));
  return all;
}

// Where lines end.
std::vector<std::size_t> line_ends(const std::string& text) {
  std::vector<std::size_t> ends;
  for (std::size_t at = 0; at < text.size(); ++at)
    if (text[at] == '\n') ends.push_back(at + 1);
  return ends;
}

// A part of a log calls something the first failure only if the whole log says the same.
void expect_no_other_failure(const Sample& sample, const std::string& whole, const std::string& part,
                             const std::string& how) {
  const Diagnosis diagnosis = diagnose_text(part);
  if (diagnosis.claim != Claim::first_failure) return;
  EXPECT_EQ(first_kind(diagnosis), whole) << sample.file << " " << how;
}

TEST(Properties, NoLogThatIsCutOffNamesAnotherFirstFailure) {
  Prng prng(1);
  for (const Sample& sample : all_samples()) {
    const std::string whole = first_kind(diagnose_text(sample.text));
    // Every line, but of the longest logs.
    const auto ends = line_ends(sample.text);
    for (std::size_t line = 0; line < ends.size(); line += 1 + ends.size() / 64) {
      const std::size_t at = ends[line];
      expect_no_other_failure(sample, whole, sample.text.substr(0, at), "up to byte " + std::to_string(at));
      expect_no_other_failure(sample, whole, sample.text.substr(at), "from byte " + std::to_string(at));
    }
    for (int i = 0; i < 30; ++i) {
      // Mostly near the end, where the failure is.
      const std::size_t tail =
          i % 3 == 0 ? sample.text.size() : std::min<std::size_t>(sample.text.size(), 900);
      const std::size_t at = sample.text.size() - prng.below(tail + 1);
      expect_no_other_failure(sample, whole, sample.text.substr(0, at), "up to byte " + std::to_string(at));
      expect_no_other_failure(sample, whole, sample.text.substr(at), "from byte " + std::to_string(at));
    }
  }
}

bool is_a_failure(const Diagnosis& diagnosis) {
  return diagnosis.claim == Claim::first_failure || diagnosis.claim == Claim::first_seen;
}

// Nor is much lost: once its line is there, a failure is found first, with whatever is behind it. Where it
// takes lines of others to see it as one, there is nothing before those, or less than a failure.
TEST(Properties, CuttingOffBehindTheFirstFailureChangesNothing) {
  for (const Sample& sample : all_samples()) {
    const Diagnosis whole = diagnose_text(sample.text);
    if (!is_a_failure(whole)) continue;
    const auto ends = line_ends(sample.text);
    for (std::size_t line = whole.findings.front().evidence.front().line; line <= ends.size(); ++line) {
      const Diagnosis part = diagnose_text(sample.text.substr(0, ends[line - 1]));
      EXPECT_LE(part.claim, whole.claim) << sample.file << " up to line " << line;
      EXPECT_TRUE(!is_a_failure(part) || first_kind(part) == first_kind(whole))
          << sample.file << " up to line " << line << " gives " << first_kind(part);
    }
  }
}

TEST(Properties, CuttingOffTheHealthyStartChangesNothing) {
  for (const Sample& sample : all_samples()) {
    const Diagnosis whole = diagnose_text(sample.text);
    if (!is_a_failure(whole)) continue;
    const auto ends = line_ends(sample.text);
    for (std::size_t line = 1; line < whole.findings.front().evidence.front().line; ++line) {
      const Diagnosis part = diagnose_text(sample.text.substr(ends[line - 1]));
      EXPECT_TRUE(!is_a_failure(part) || first_kind(part) == first_kind(whole))
          << sample.file << " from line " << line + 1 << " gives " << first_kind(part);
    }
  }
}

TEST(Properties, EachClaimIsMadeOfSomeLog) {
  std::map<Claim, int> seen;
  for (const Sample& sample : all_samples()) ++seen[diagnose_text(sample.text).claim];
  for (const Claim claim :
       {Claim::nothing, Claim::condition, Claim::consequence, Claim::first_seen, Claim::first_failure})
    EXPECT_GE(seen[claim], 10) << name_of(claim);
}

TEST(Properties, PrefixesOfLaunchersChangeNoDiagnosis) {
  const std::vector<std::string> prefixes = {"[rank3]: ",
                                             "[1,3]<stderr>:",
                                             "[prterun-n1-77@1,3]<stdout>: ",
                                             "node7: ",
                                             " 3: ",
                                             "[pod/trainer-3/pytorch] ",
                                             "2026-05-01T10:00:00.123456Z ",
                                             "[2026-05-01 10:00:00] ",
                                             "2026-05-01 10:00:00,123 ",
                                             "Thu Jun 18 14:28:58 2026",
                                             "2026-05-01T10:00:00.1Z stderr F ",
                                             "trainer-3  | ",
                                             "node7: 2026-05-01T10:00:00Z [1,3]<stderr>:",
                                             "[default3]:",
                                             "stderr: ",
                                             "\x1b[33m[rank3]:\x1b[0m "};
  for (const Sample& sample : read_samples(BEELINE_LOGS)) {
    for (const std::string& prefix : prefixes) {
      std::string text;
      for (const std::string& line : lines_of(sample.text)) text += prefix + line + "\n";
      EXPECT_EQ(first_kind(diagnose_text(text)), sample.kind) << sample.file << " behind " << prefix;
    }
  }
}

TEST(Properties, OtherRanksHealthyLinesChangeNoDiagnosis) {
  Prng prng(3);
  std::vector<std::vector<std::string>> healthy;
  for (const Sample& sample : read_samples(BEELINE_LOGS))
    if (sample.file == "healthy/nccl_2_21_train.log" || sample.file == "healthy/nccl_tests.log" ||
        sample.file == "healthy/progress_bar.log" || sample.file == "healthy/prose.log" ||
        sample.file == "healthy/packet_loss_words.log" || sample.file == "healthy/http_noise.log")
      healthy.push_back(lines_of(sample.text));
  ASSERT_EQ(healthy.size(), 6u);
  for (const Sample& sample : read_samples(BEELINE_LOGS)) {
    const auto own = lines_of(sample.text);
    for (int i = 0; i < 12; ++i) {
      const auto& other = healthy[prng.below(healthy.size())];
      std::vector<std::string> mixed;
      std::size_t next_own = 0, next_other = 0;
      while (next_own < own.size() || next_other < other.size()) {
        const bool take_other = next_other < other.size() && (next_own == own.size() || prng.below(3) == 0);
        mixed.push_back(take_other ? "[rank97]: " + other[next_other++] : own[next_own++]);
      }
      EXPECT_EQ(first_kind(diagnose_text(joined(mixed))), sample.kind) << sample.file;
    }
  }
}

TEST(Properties, PiecesOfAnySizeGiveTheSame) {
  Prng prng(4);
  for (const Sample& sample : read_samples(BEELINE_LOGS)) {
    Reader reader;
    reader.start_source("log");
    for (std::string_view rest = sample.text; !rest.empty();) {
      const std::size_t bytes = std::min<std::size_t>(rest.size(), 1 + prng.below(97));
      reader.add(rest.substr(0, bytes));
      rest.remove_prefix(bytes);
    }
    EXPECT_EQ(to_json(reader.finish()), to_json(diagnose_text(sample.text))) << sample.file;
  }
}

bool has_control_characters(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F; });
}

TEST(Properties, HostileBytesAreReadAndNeverPrinted) {
  Prng prng(5);
  for (const Sample& sample : read_samples(BEELINE_LOGS)) {
    for (int i = 0; i < 8; ++i) {
      std::string text = sample.text;
      for (std::uint64_t changes = 1 + prng.below(40); changes > 0; --changes)
        text[prng.below(text.size())] = static_cast<char>(prng.below(256));
      const Diagnosis diagnosis = diagnose_text(text, "evil\x1b]0;title\a\n.log");
      EXPECT_FALSE(has_control_characters(render(diagnosis, false, true))) << sample.file;
      EXPECT_NO_THROW(to_json(diagnosis).dump());
    }
  }
}

TEST(Properties, OneLineOfTenMegabytesIsReadInPieces) {
  const std::string failure =
      " node7:1:2 [0] a.cc:1 NCCL WARN NET/IB : Got completion from peer 10.0.0.7<1> with status=12 opcode=0 "
      "len=0 vendor err 129 ";
  std::string text(10'000'000, 'x');
  text += '\r' + failure + '\r' + std::string(1000, '\0') + "\n";
  const Diagnosis diagnosis = diagnose_text(text);
  EXPECT_EQ(first_kind(diagnosis), "completion-12");
  EXPECT_EQ(diagnosis.lines, 1u);
}

TEST(Properties, ManyDifferentFailuresStayOneFinding) {
  std::string text;
  for (int i = 0; i < 60'000; ++i)
    text += std::to_string(i) + ": node" + std::to_string(i) +
            ":1:2 [0] a.cc:1 NCCL WARN NET/IB : Got completion from peer 10.0.0.7<1> with status=12 opcode=0 "
            "len=0 vendor err 129\n";
  const Diagnosis diagnosis = diagnose_text(text);
  ASSERT_EQ(diagnosis.findings.size(), 1u);
  EXPECT_EQ(diagnosis.findings.front().rank, "0");
  EXPECT_LE(render(diagnosis, false).size(), 4000u);
}

}  // namespace
}  // namespace beeline::doctor::log
