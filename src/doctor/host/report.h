// What a run of the checks looks like to a reader and to a program.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "doctor/host/check.h"

namespace beeline::doctor {

struct Report {
  std::string host;
  std::vector<Result> results;
  std::vector<std::string> remarks = {};  // what to know before the results
};

// The checks that --only names (groups and checks); all of them for an empty list.
beeline::Result<std::vector<const Check*>> choose_checks(const std::string& only);
Report examine_host(Evidence& evidence, const std::vector<const Check*>& chosen);

struct View {
  bool colour = false;
  bool verbose = false;  // also what is fine, and everything that was read
};
// The status's name, in its colour where there are colours.
std::string painted(Status status, const View& view);
std::string to_text(const Report& report, const View& view);
std::string to_json(const Report& report);
std::string explain(const Check& check);
std::string list_checks();
// The table of docs/doctor.md.
std::string checks_as_markdown();

// 0: nothing worse than ok; 2: warnings; 3: failures.
int exit_status(const Report& report);

}  // namespace beeline::doctor
