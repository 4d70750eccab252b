#include "doctor/host/case.h"

#include <fmt/format.h>

#include <algorithm>

#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

std::string shorten(std::string_view value) {
  std::string one_line;
  for (const auto& line : lines_of(value)) {
    if (!one_line.empty()) one_line += " | ";
    one_line += trim(line);
  }
  if (one_line.size() > 160) one_line = one_line.substr(0, 157) + "...";
  return one_line;
}

// Distinct texts in their order; of very many only the first.
std::string merge(const std::vector<Finding>& findings, Status status, std::string Finding::*part) {
  std::vector<std::string> distinct;
  for (const auto& finding : findings) {
    const auto& text = finding.*part;
    if (finding.status != status || text.empty()) continue;
    if (std::find(distinct.begin(), distinct.end(), text) == distinct.end()) distinct.push_back(text);
  }
  constexpr std::size_t most = 8;
  std::string merged = join({distinct.begin(), distinct.begin() + std::min(most, distinct.size())}, "; ");
  if (distinct.size() > most) merged += fmt::format("; and {} more", distinct.size() - most);
  return merged;
}

}  // namespace

std::string cite(const Reading& reading) {
  if (reading.access == Access::absent) return name_of(reading.question) + " is not there";
  if (reading.unreadable()) return name_of(reading.question) + " cannot be read: " + reading.why;
  return name_of(reading.question) + " = " + shorten(reading.value);
}

std::string cite(const Reading& reading, std::string_view line) {
  return name_of(reading.question) + ": " + shorten(line);
}

Reading Case::read(const Question& question) {
  auto reading = evidence_.read(question);
  if (asked_.insert(question).second) trail_.push_back(reading);
  return reading;
}

std::vector<std::string> Case::names_in(const std::string& path) { return lines_of(directory(path).value); }

std::optional<std::string> Case::text(const std::string& path) {
  const auto reading = file(path);
  if (!reading.found()) return std::nullopt;
  return std::string(trim(reading.value));
}

void Case::pass(std::string evidence) { findings_.push_back({Status::ok, std::move(evidence), "", ""}); }

void Case::warn(std::string evidence, std::string cause, std::string fix) {
  findings_.push_back({Status::warning, std::move(evidence), std::move(cause), std::move(fix)});
}

void Case::fail(std::string evidence, std::string cause, std::string fix) {
  findings_.push_back({Status::failure, std::move(evidence), std::move(cause), std::move(fix)});
}

void Case::not_applicable(std::string why) {
  findings_.push_back({Status::not_applicable, std::move(why), "", ""});
}

void Case::unreadable(const Reading& reading) {
  const auto why = reading.why.empty() ? "it is not there" : reading.why;
  findings_.push_back({Status::unreadable, name_of(reading.question) + " cannot be read: " + why,
                       "not examined: " + why, ""});
}

Result Case::result(const Check& check) && {
  Result result;
  result.check = &check;
  if (findings_.empty())
    findings_.push_back(
        {Status::failure, "", "the check said nothing: a mistake of beeline, please report it", ""});
  result.status = std::min_element(findings_.begin(), findings_.end(), [](const auto& a, const auto& b) {
                    return a.status < b.status;
                  })->status;
  result.evidence = merge(findings_, result.status, &Finding::evidence);
  result.cause = merge(findings_, result.status, &Finding::cause);
  result.fix = merge(findings_, result.status, &Finding::fix);
  result.compare = std::move(compare_);
  result.trail = std::move(trail_);
  return result;
}

Result examine(const Check& check, Evidence& evidence) {
  Case at_work(evidence);
  check.run(at_work);
  return std::move(at_work).result(check);
}

std::string_view name(Status status) {
  switch (status) {
    case Status::failure:
      return "failure";
    case Status::warning:
      return "warning";
    case Status::unreadable:
      return "unreadable";
    case Status::ok:
      return "ok";
    case Status::not_applicable:
      return "not_applicable";
  }
  return "";
}

}  // namespace beeline::doctor
