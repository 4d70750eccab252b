// Several hosts' reports: only what differs.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace beeline::doctor {

struct NamedText {
  std::string name;  // the file, for messages
  std::string text;  // what `beeline doctor --json` printed
};

struct Merged {
  std::string text;
  bool differs = false;
};

// Hosts with one result are named together.
Result<Merged> merge_reports(const std::vector<NamedText>& reports);

}  // namespace beeline::doctor
