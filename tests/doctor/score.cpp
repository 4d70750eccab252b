// doctor_score DIRECTORY: how well the doctor reads the logs of DIRECTORY/expected.tsv.
// Precision: of the logs in which it found something, those where the first finding is right.
// Recall: of the logs in which something is wrong, those where the first finding is right.
#include <fmt/format.h>

#include "samples.h"

int main(int argc, char** argv) {
  using namespace beeline::doctor::log;
  const auto samples = argc == 2 ? read_samples(argv[1]) : std::vector<Sample>{};
  if (samples.empty()) {
    fmt::print(stderr, "usage: doctor_score DIRECTORY   (which has an expected.tsv)\n");
    return 2;
  }
  int failing = 0, found = 0, right = 0, wrong_details = 0;
  for (const Sample& sample : samples) {
    const Diagnosis diagnosis = diagnose_text(sample.text, sample.file);
    const bool is_right = first_kind(diagnosis) == sample.kind;
    failing += sample.kind != "-" ? 1 : 0;
    found += diagnosis.findings.empty() ? 0 : 1;
    right += is_right && sample.kind != "-" ? 1 : 0;
    const std::string problem = disagreement(sample, diagnosis);
    wrong_details += is_right && !problem.empty() ? 1 : 0;
    if (!problem.empty()) fmt::print("{}: {}\n", sample.file, problem);
  }
  const auto percent = [](int part, int whole) { return whole == 0 ? 100.0 : 100.0 * part / whole; };
  fmt::print(
      "{} logs, {} failing and {} healthy: precision {:.1f} % ({}/{}), recall {:.1f} % ({}/{}), wrong rank, "
      "host or cause: {}\n",
      samples.size(), failing, static_cast<int>(samples.size()) - failing, percent(right, found), right,
      found, percent(right, failing), right, failing, wrong_details);
  return right == failing && found == right ? 0 : 1;
}
