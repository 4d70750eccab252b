// What a check is, and what it says.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/host/evidence.h"

namespace beeline::doctor {

// In the order of a report: worst first.
enum class Status : std::uint8_t { failure, warning, unreadable, ok, not_applicable };
std::string_view name(Status status);

class Case;

// A row of the registry.
struct Check {
  std::string_view id;     // "roce.gid_v2": the part before the dot is the group
  std::string_view title;  // what holds when it is ok
  void (*run)(Case&);
  std::string_view symptom;  // what it looks like in training
  std::string_view fix;      // in general; a finding names the exact command
  std::string_view source;   // the public report or document that it rests on
  std::string_view group() const { return id.substr(0, id.find('.')); }
};

struct Group {
  std::string_view id;
  std::string_view title;
};

std::span<const Group> groups();
// Every check of every group, in the order of groups().
const std::vector<Check>& registry();
const Check* find_check(std::string_view id);

struct Finding {
  Status status = Status::ok;
  std::string evidence, cause, fix;
};

struct Result {
  const Check* check = nullptr;
  Status status = Status::not_applicable;
  std::string evidence, cause, fix;
  // What should be alike on all hosts of a job: "mlx5_0 firmware" -> "28.39.1002".
  std::map<std::string, std::string> compare;
  std::vector<Reading> trail;  // everything that it read
  std::string group;           // where it is not the check's: "peer HOST"

  std::string_view group_name() const { return group.empty() ? check->group() : std::string_view(group); }
};

// Runs one check; a check that says nothing is a mistake of ours and becomes a failure.
Result examine(const Check& check, Evidence& evidence);

}  // namespace beeline::doctor
