#include "doctor/host/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/nearest.h"
#include "doctor/host/text.h"
#include "doctor/printable.h"

namespace beeline::doctor {
namespace {

std::string_view colour_of(Status status) {
  switch (status) {
    case Status::failure:
      return "\x1b[1;31m";
    case Status::warning:
      return "\x1b[1;33m";
    case Status::unreadable:
      return "\x1b[35m";
    case Status::ok:
      return "\x1b[32m";
    case Status::not_applicable:
      return "\x1b[2m";
  }
  return "";
}

std::string heading(const Result& result, const View& view) {
  const auto width = name(result.status).size();
  return fmt::format("{}{} {}: {}\n", painted(result.status, view),
                     std::string(width < 14 ? 14 - width : 0, ' '), result.check->id, result.check->title);
}

void add_line(std::string& text, const char* label, std::string_view value) {
  if (!value.empty()) text += fmt::format("    {:<9} {}\n", label, printable(value, whole));
}

std::string directory_of(const Reading& reading) {
  const auto& name = reading.question.name;
  return reading.question.kind == Kind::file ? name.substr(0, name.rfind('/') + 1) : std::string();
}

// Of many files that were read in one directory, one after the other, only the first are named.
void add_trail(std::string& text, const std::vector<Reading>& trail) {
  constexpr std::size_t most_of_directory = 4;
  std::map<std::string, std::size_t> count;
  for (const auto& reading : trail) ++count[directory_of(reading)];
  std::map<std::string, std::size_t> shown;
  for (const auto& reading : trail) {
    const auto directory = directory_of(reading);
    const auto all = count[directory], number = ++shown[directory];
    const bool folded = !directory.empty() && all > 2 * most_of_directory;
    if (folded && number > most_of_directory + 1) continue;
    if (folded && number > most_of_directory)
      add_line(text, "read", fmt::format("{}: {} more", directory, all - most_of_directory));
    else
      add_line(text, "read",
               name_of(reading.question) + (reading.found()        ? ""
                                            : reading.unreadable() ? ": " + reading.why
                                                                   : ": not there"));
  }
}

std::string in_full(const Result& result, const View& view) {
  auto text = heading(result, view);
  add_line(text, "evidence", result.evidence);
  add_line(text, "cause", result.cause);
  add_line(text, "fix", result.fix);
  if (result.status == Status::failure || result.status == Status::warning) {
    add_line(text, "explains", result.check->symptom);
    add_line(text, "source", result.check->source);
  }
  if (view.verbose) add_trail(text, result.trail);
  return text;
}

std::map<Status, std::vector<const Result*>> by_status(const Report& report) {
  std::map<Status, std::vector<const Result*>> sorted;
  for (const auto& result : report.results) sorted[result.status].push_back(&result);
  return sorted;
}

std::string_view title_of(std::string_view group) {
  for (const auto& row : groups())
    if (row.id == group) return row.title;
  return group;
}

std::string ids(const std::vector<const Result*>& results) {
  std::vector<std::string> names;
  names.reserve(results.size());
  for (const auto* result : results) names.emplace_back(result->check->id);
  return join(names, " ");
}

// "1 warning", "2 warnings"
std::string counted(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

bool has_rdma(const Report& report) {
  const auto found = std::find_if(report.results.begin(), report.results.end(),
                                  [](const Result& result) { return result.check->id == "nic.devices"; });
  return found == report.results.end() || found->status != Status::not_applicable;
}

// More names of checks that do not apply tell a reader nothing.
constexpr std::size_t most_named = 12;

constexpr auto without_rdma =
    "This host has no RDMA device. RoCE v2 works here all the same, in software (bee0):\n"
    "    beeline devices                     which addresses bee0 would use\n"
    "    beeline perf write_bw --loopback    does it work, and how fast\n"
    "    PyTorch: init_process_group(\"beeline\"), over the network that is there\n\n";

}  // namespace

std::string painted(Status status, const View& view) {
  return view.colour ? fmt::format("{}{}\x1b[0m", colour_of(status), name(status))
                     : std::string(name(status));
}

beeline::Result<std::vector<const Check*>> choose_checks(const std::string& only) {
  std::vector<const Check*> chosen;
  const auto wanted = split(only, ",");
  if (!only.empty() && wanted.empty())
    return fail(Errc::invalid_argument, "--only '{}': give groups or checks, separated by commas", only);
  std::vector<std::string> unknown = wanted;
  std::vector<std::string_view> names;
  for (const auto& group : groups()) names.push_back(group.id);
  for (const auto& check : registry()) {
    names.push_back(check.id);
    const auto named = [&](const std::string& word) { return word == check.id || word == check.group(); };
    if (!wanted.empty() && std::none_of(wanted.begin(), wanted.end(), named)) continue;
    chosen.push_back(&check);
    unknown.erase(std::remove_if(unknown.begin(), unknown.end(), named), unknown.end());
  }
  if (!unknown.empty())
    return fail(Errc::invalid_argument,
                "--only {}: no such group or check{}; `beeline doctor --list` names them", unknown.front(),
                did_you_mean(unknown.front(), names));
  return chosen;
}

Report examine_host(Evidence& evidence, const std::vector<const Check*>& chosen) {
  Report report;
  const auto host = evidence.read({Kind::fact, "hostname"});
  report.host = host.found() ? std::string(trim(host.value)) : "unknown";
  for (const auto* check : chosen) report.results.push_back(examine(*check, evidence));
  return report;
}

std::string to_text(const Report& report, const View& view) {
  const auto sorted = by_status(report);
  const auto count = [&](Status status) { return sorted.count(status) != 0 ? sorted.at(status).size() : 0; };
  std::string text =
      fmt::format("{}: {}: {}, {}, {} unreadable, {} ok, {} not applicable\n\n",
                  printable(report.host, whole), counted(report.results.size(), "check"),
                  counted(count(Status::failure), "failure"), counted(count(Status::warning), "warning"),
                  count(Status::unreadable), count(Status::ok), count(Status::not_applicable));
  for (const auto& remark : report.remarks) text += printable(remark, whole) + "\n\n";
  if (!has_rdma(report)) text += without_rdma;
  for (const auto& [status, results] : sorted) {
    const bool quiet = status == Status::ok || status == Status::not_applicable;
    if (quiet && !view.verbose) continue;
    std::string_view group;
    for (const auto* result : results) {
      if (result->group_name() != group) {
        group = result->group_name();
        text += fmt::format("-- {}\n", printable(title_of(group), whole));
      }
      text += in_full(*result, view);
    }
    text += "\n";
  }
  if (!view.verbose) {
    if (count(Status::ok) != 0) text += "ok: " + ids(sorted.at(Status::ok)) + "\n";
    if (count(Status::not_applicable) > most_named)
      text += fmt::format("not applicable: {} checks (-v: which, and why)\n", count(Status::not_applicable));
    else if (count(Status::not_applicable) != 0)
      text += "not applicable: " + ids(sorted.at(Status::not_applicable)) + "\n";
  }
  return text;
}

std::string to_json(const Report& report) {
  auto document = nlohmann::ordered_json{{"version", 1}, {"host", report.host}};
  if (!report.remarks.empty()) document["remarks"] = report.remarks;
  auto& checks = document["checks"] = nlohmann::ordered_json::array();
  for (const auto& result : report.results) {
    nlohmann::ordered_json row = {
        {"id", result.check->id},         {"group", result.group_name()}, {"status", name(result.status)},
        {"evidence", result.evidence},    {"cause", result.cause},        {"fix", result.fix},
        {"source", result.check->source}, {"title", result.check->title}, {"symptom", result.check->symptom}};
    row["compare"] = result.compare;
    checks.push_back(std::move(row));
  }
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string explain(const Check& check) {
  return fmt::format("{}: {}\n    explains  {}\n    fix       {}\n    source    {}\n", check.id, check.title,
                     check.symptom, check.fix, check.source);
}

std::string list_checks() {
  std::string text;
  for (const auto& group : groups()) {
    text += fmt::format("{}: {}\n", group.id, group.title);
    for (const auto& check : registry())
      if (check.group() == group.id) text += fmt::format("    {:<28} {}\n", check.id, check.title);
  }
  return text;
}

std::string checks_as_markdown() {
  std::string text =
      "| check | what holds when it is ok | what it explains in training | source |\n|---|---|---|---|\n";
  for (const auto& check : registry())
    text += fmt::format("| `{}` | {} | {} | {} |\n", check.id, check.title, check.symptom, check.source);
  return text;
}

int exit_status(const Report& report) {
  int status = 0;
  for (const auto& result : report.results)
    status = std::max(status, result.status == Status::failure   ? 3
                              : result.status == Status::warning ? 2
                                                                 : 0);
  return status;
}

}  // namespace beeline::doctor
