// Several hosts' reports: only what differs, and once what all of them suffer from.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "doctor/host/check.h"
#include "doctor/host/report.h"

namespace beeline::doctor {

struct NamedText {
  std::string name;  // the file or the rank, for messages
  std::string text;  // what `beeline doctor --json` printed
};

// What a check said on one host.
struct Said {
  Status status = Status::not_applicable;
  std::string title, evidence, cause, fix;
};

struct Difference {
  std::string check, what;  // "status", or what the check compares: "ens1 MTU"
  std::map<std::string, std::vector<std::string>> hosts_by_value;
  std::map<std::string, Said> examples;  // of a status: what the first host that has it says
};

// A failure or a warning that every host has. The evidence is the first host's.
struct Shared {
  std::string check;
  Said said;
};

struct Comparison {
  std::size_t reports = 0;
  std::vector<std::string> hosts;
  std::vector<Difference> differences;
  std::vector<Shared> shared;
  std::vector<std::string> missing;      // those who did not answer, in words; the caller knows
  bool alarmed = false, failed = false;  // some host has a warning; a failure
};

// Which reports of one host are one: none, or those that say the same (a host has many ranks).
enum class SameHost : std::uint8_t { keep, fold };

// Hosts with one result are named together. Needs at least one report.
beeline::Result<Comparison> compare_reports(const std::vector<NamedText>& reports, SameHost same_host);

std::string to_text(const Comparison& comparison, const View& view);
std::string to_json(const Comparison& comparison);

// 0: all alike and nothing worse than ok; 2: warnings, or hosts that differ; 3: failures; 1: somebody is
// missing.
int exit_status(const Comparison& comparison);

}  // namespace beeline::doctor
