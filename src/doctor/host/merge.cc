#include "doctor/host/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

using Json = nlohmann::json;

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Result<Json> parse(const NamedText& report) {
  auto document = Json::parse(report.text, nullptr, false);
  const bool shaped = document.is_object() && document.value("version", Json()) == Json(1) &&
                      document.contains("checks") && document["checks"].is_array();
  if (!shaped)
    return fail(Errc::invalid_argument, "{} is not a report: write it with `beeline doctor --json >FILE`",
                report.name);
  for (const auto& row : document["checks"])
    if (!row.is_object() || text_of(row, "id").empty())
      return fail(Errc::invalid_argument, "{} is not a report: a check without an id", report.name);
  return document;
}

// check -> what -> value -> hosts
using Values = std::map<std::string, std::map<std::string, std::map<std::string, std::vector<std::string>>>>;

void collect(const Json& document, const std::string& host, Values& values) {
  for (const auto& row : document["checks"]) {
    const auto id = text_of(row, "id");
    values[id]["status"][text_of(row, "status")].push_back(host);
    const auto compare = row.find("compare");
    if (compare == row.end() || !compare->is_object()) continue;
    for (const auto& [what, value] : compare->items())
      values[id][what][value.is_string() ? value.get<std::string>() : value.dump()].push_back(host);
  }
}

std::string hosts_text(const std::vector<std::string>& hosts, std::size_t all) {
  if (hosts.size() == all) return "all hosts";
  if (hosts.size() <= 8) return join(hosts, " ");
  return fmt::format("{} and {} more", join({hosts.begin(), hosts.begin() + 7}, " "), hosts.size() - 7);
}

// Most hosts first, so that the odd one out stands last and apart.
std::string show(const std::map<std::string, std::vector<std::string>>& by_value, std::size_t all) {
  std::vector<std::pair<std::string, std::vector<std::string>>> rows(by_value.begin(), by_value.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::string text;
  for (const auto& [value, hosts] : rows)
    text += fmt::format("        {}: {}\n", value.empty() ? "(nothing)" : value, hosts_text(hosts, all));
  return text;
}

}  // namespace

Result<Merged> merge_reports(const std::vector<NamedText>& reports) {
  if (reports.size() < 2) return fail(Errc::invalid_argument, "--merge needs at least two reports");
  Values values;
  std::map<std::string, int> seen;
  for (const auto& report : reports) {
    BEELINE_TRY(const auto document, parse(report));
    auto host = text_of(document, "host");
    if (host.empty()) host = report.name;
    if (++seen[host] > 1) host += fmt::format(" ({})", report.name);
    collect(document, host, values);
  }
  Merged merged;
  for (auto& [id, parts] : values)
    for (auto& [what, by_value] : parts) {
      std::size_t count = 0;
      for (const auto& [value, hosts] : by_value) count += hosts.size();
      // A value that some hosts do not have at all is a difference too.
      if (count < reports.size()) {
        std::vector<std::string> with;
        for (const auto& [value, hosts] : by_value) with.insert(with.end(), hosts.begin(), hosts.end());
        for (const auto& [host, times] : seen)
          if (std::find(with.begin(), with.end(), host) == with.end())
            by_value["(not there)"].push_back(host);
      }
      if (by_value.size() < 2) continue;
      merged.differs = true;
      merged.text += fmt::format("{}: {} differs\n{}", id, what, show(by_value, reports.size()));
    }
  merged.text = fmt::format("{} hosts\n", reports.size()) +
                (merged.differs ? merged.text : std::string("nothing differs\n"));
  return merged;
}

}  // namespace beeline::doctor
