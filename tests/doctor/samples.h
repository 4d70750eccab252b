// The sample logs and what a diagnosis of them must say first.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "doctor/log/diagnose.h"

namespace beeline::doctor::log {

struct Sample {
  std::string file;               // below the folder of the table
  std::string kind;               // of the first finding; "-" where there must be none
  std::string rank, host, cause;  // of the first finding; "-" where the table leaves it open
  std::string text;
};

inline std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(text).str();
}

// The rows of DIRECTORY/expected.tsv.
inline std::vector<Sample> read_samples(const std::string& directory) {
  std::vector<Sample> samples;
  std::istringstream table(read_file(directory + "/expected.tsv"));
  for (std::string row; std::getline(table, row);) {
    if (row.empty() || row.front() == '#') continue;
    std::istringstream columns(row);
    Sample sample;
    std::getline(columns, sample.file, '\t');
    for (std::string* const column : {&sample.kind, &sample.rank, &sample.host, &sample.cause})
      if (!std::getline(columns, *column, '\t')) column->assign(1, '-');
    sample.text = read_file(directory + "/" + sample.file);
    samples.push_back(std::move(sample));
  }
  return samples;
}

inline Diagnosis diagnose_text(const std::string& text, const std::string& name = "log") {
  const Source source{name, text};
  return diagnose(std::span(&source, 1));
}

inline std::string first_kind(const Diagnosis& diagnosis) {
  return diagnosis.findings.empty() ? "-" : diagnosis.findings.front().kind;
}

// What the table says and the diagnosis does not; empty if they agree.
inline std::string disagreement(const Sample& sample, const Diagnosis& diagnosis) {
  const std::string kind = first_kind(diagnosis);
  if (kind != sample.kind) return "first diagnosis is " + kind + ", expected " + sample.kind;
  if (diagnosis.findings.empty()) return {};
  const Finding& first = diagnosis.findings.front();
  const std::string cause = first.causes.empty() ? "" : first.causes.front().id;
  if (sample.rank != "-" && first.rank != sample.rank)
    return "rank is '" + first.rank + "', expected " + sample.rank;
  if (sample.host != "-" && first.host != sample.host)
    return "host is '" + first.host + "', expected " + sample.host;
  if (sample.cause != "-" && cause != sample.cause)
    return "first cause is '" + cause + "', expected " + sample.cause;
  return {};
}

}  // namespace beeline::doctor::log
