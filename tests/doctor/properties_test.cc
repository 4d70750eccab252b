// What must hold for every log: cut off, mixed with others, behind prefixes, in pieces, hostile.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
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

// What a log may say when its end is missing: nothing, the same, or less specific. The lines that
// made a second reading more specific are then still to come.
bool is_less_specific(const std::string& cut, const std::string& whole) {
  static const std::multimap<std::string, std::string> less = {
      {"modify-qp-110", "modify-qp"}, {"modify-qp-101", "modify-qp"},      {"modify-qp-19", "modify-qp"},
      {"modify-qp-22", "modify-qp"},  {"loss-without-pfc", "packet-loss"},
  };
  if (cut == "-" || cut == whole) return true;
  // These say themselves that somebody else failed, whose lines may be those that are missing.
  if (cut == "completion-5" || cut == "connection-closed") return true;
  if (cut == "watchdog-timeout" || cut == "mpi-unreachable") return true;
  const auto [from, to] = less.equal_range(whole);
  return std::any_of(from, to, [&](const auto& row) { return row.second == cut; });
}

// A GID that is empty is a finding until the failure that it causes.
bool is_shown_cause(const std::string& kind, const Diagnosis& whole) {
  if (whole.findings.empty()) return false;
  const auto& causes = whole.findings.front().causes;
  return std::any_of(causes.begin(), causes.end(),
                     [&](const Cause& cause) { return cause.id == kind && !cause.evidence.empty(); });
}

// What the kernel said on another day is a finding until the job's own lines say when the job was.
bool says_only_what_the_kernel_said(const std::string& text) {
  const auto lines = lines_of(text);
  return !lines.empty() && lines.front().find("mlx5_core") != std::string::npos &&
         std::all_of(lines.begin(), lines.end(),
                     [](const std::string& line) { return line.starts_with("["); });
}

TEST(Properties, CuttingOffTheEndNeverGivesAnotherDiagnosis) {
  Prng prng(1);
  for (const Sample& sample : read_samples(BEELINE_LOGS)) {
    const Diagnosis whole = diagnose_text(sample.text);
    for (int i = 0; i < 60; ++i) {
      // Mostly near the end, where the failure is.
      const std::size_t tail =
          i % 3 == 0 ? sample.text.size() : std::min<std::size_t>(sample.text.size(), 900);
      const std::size_t at = sample.text.size() - prng.below(tail + 1);
      const std::string rest = sample.text.substr(0, at);
      if (says_only_what_the_kernel_said(rest) && !says_only_what_the_kernel_said(sample.text)) continue;
      const std::string cut = first_kind(diagnose_text(rest));
      EXPECT_TRUE(is_less_specific(cut, sample.kind) || is_shown_cause(cut, whole))
          << sample.file << " cut at byte " << at << " gives " << cut;
    }
  }
}

TEST(Properties, CuttingOffHealthyStartsGivesTheSameFailure) {
  Prng prng(2);
  for (const Sample& sample : read_samples(BEELINE_LOGS)) {
    const Diagnosis whole = diagnose_text(sample.text);
    if (whole.findings.empty() || whole.findings.front().severity != Severity::failure) continue;
    const std::uint64_t last = whole.findings.front().evidence.front().line;
    const auto lines = lines_of(sample.text);
    // Not inside of a tool's block, which begins before its evidence.
    if (sample.text.find("NCCL") == std::string::npos) continue;
    for (int i = 0; i < 10; ++i) {
      const auto from = static_cast<std::ptrdiff_t>(prng.below(last));
      if (sample.kind == "wrong-interface" || sample.kind == "process-failed")
        continue;  // follow from lines before
      EXPECT_EQ(first_kind(diagnose_text(joined({lines.begin() + from, lines.end()}))), sample.kind)
          << sample.file << " from " << from;
    }
  }
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
      // A collector's time in front of the kernel's own: all lines would be of one moment, but not the
      // kernel's.
      if (sample.text.find("mlx5_core 0000") != std::string::npos && prefix.find(':') != prefix.rfind(':'))
        continue;
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
      // NCCL's lines of other hosts make a job on one host one on several.
      if (sample.kind == "-" && joined(other).find("NCCL") != std::string::npos) continue;
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
