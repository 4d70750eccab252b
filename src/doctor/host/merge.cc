#include "doctor/host/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "doctor/host/text.h"
#include "doctor/printable.h"

namespace beeline::doctor {
namespace {

using Json = nlohmann::json;

constexpr std::size_t most_named_hosts = 8;
constexpr const char* not_there = "(not there)";

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

beeline::Result<Json> parse(const NamedText& report) {
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

Status status_of(const Json& row) {
  const auto word = text_of(row, "status");
  for (const auto status : {Status::failure, Status::warning, Status::unreadable, Status::ok})
    if (word == name(status)) return status;
  return Status::not_applicable;
}

// check -> what -> value, of one host.
using Values = std::map<std::string, std::map<std::string, std::string>>;

struct HostReport {
  std::string host, name;
  Values values;
  std::map<std::string, Said> said;
};

HostReport digest(const NamedText& report, const Json& document) {
  HostReport host{text_of(document, "host"), report.name, {}, {}};
  if (host.host.empty()) host.host = report.name;
  for (const auto& row : document["checks"]) {
    const auto id = text_of(row, "id");
    host.said[id] = {status_of(row), text_of(row, "title"), text_of(row, "evidence"), text_of(row, "cause"),
                     text_of(row, "fix")};
    host.values[id]["status"] = name(host.said[id].status);
    const auto compare = row.find("compare");
    if (compare == row.end() || !compare->is_object()) continue;
    for (const auto& [what, value] : compare->items())
      host.values[id][what] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return host;
}

// Reports of one host that say the same become one; the others are told apart by their names.
void tell_apart(std::vector<HostReport>& reports, SameHost same_host) {
  std::map<std::string, std::vector<std::size_t>> of_host;
  std::vector<HostReport> kept;
  for (auto& report : reports) {
    auto& same = of_host[report.host];
    const bool known =
        std::any_of(same.begin(), same.end(), [&](std::size_t i) { return kept[i].values == report.values; });
    if (known && same_host == SameHost::fold) continue;
    same.push_back(kept.size());
    kept.push_back(std::move(report));
  }
  for (const auto& [host, indices] : of_host)
    if (indices.size() > 1)
      for (const auto i : indices) kept[i].host = fmt::format("{} ({})", host, kept[i].name);
  reports = std::move(kept);
}

void add_difference(const std::string& check, const std::string& what, const std::vector<HostReport>& reports,
                    Comparison& out) {
  Difference difference{check, what, {}, {}};
  for (const auto& report : reports) {
    // A value that some hosts do not have at all is a difference too.
    const auto row = report.values.find(check);
    const bool there = row != report.values.end() && row->second.count(what) != 0;
    const auto value = there ? row->second.at(what) : std::string(not_there);
    difference.hosts_by_value[value].push_back(report.host);
    if (there && what == "status") difference.examples.emplace(value, report.said.at(check));
  }
  if (difference.hosts_by_value.size() > 1) out.differences.push_back(std::move(difference));
}

void add_shared(const std::string& check, const std::vector<HostReport>& reports, Comparison& out) {
  const auto has_alarm = [&](const HostReport& report, Status status) {
    const auto row = report.said.find(check);
    return row != report.said.end() && row->second.status == status;
  };
  for (const auto status : {Status::failure, Status::warning}) {
    const auto count = std::count_if(reports.begin(), reports.end(),
                                     [&](const auto& report) { return has_alarm(report, status); });
    out.alarmed = out.alarmed || count > 0;
    out.failed = out.failed || (count > 0 && status == Status::failure);
    if (static_cast<std::size_t>(count) == reports.size())
      out.shared.push_back({check, reports.front().said.at(check)});
  }
}

std::string hosts_text(const std::vector<std::string>& hosts) {
  if (hosts.size() <= most_named_hosts) return join(hosts, " ");
  return fmt::format("{} and {} more", join({hosts.begin(), hosts.begin() + most_named_hosts - 1}, " "),
                     hosts.size() + 1 - most_named_hosts);
}

// Most hosts first, so that the odd one out stands last and apart.
std::string show(const Difference& difference, const View& view) {
  std::vector<std::pair<std::string, std::vector<std::string>>> rows(difference.hosts_by_value.begin(),
                                                                     difference.hosts_by_value.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  auto text =
      fmt::format("{}: {} differs\n", printable(difference.check, whole), printable(difference.what, whole));
  for (const auto& [value, hosts] : rows) {
    const auto said = difference.examples.find(value);
    const bool known = said != difference.examples.end();
    text += fmt::format("        {}: {}\n",
                        value.empty() ? "(nothing)"
                        : known       ? painted(said->second.status, view)
                                      : printable(value, whole),
                        printable(hosts_text(hosts), whole));
    if (!known || said->second.status > Status::unreadable) continue;
    for (const auto& [label, part] :
         {std::pair("evidence", said->second.evidence), std::pair("cause", said->second.cause),
          std::pair("fix", said->second.fix)})
      if (!part.empty()) text += fmt::format("            {:<9} {}\n", label, printable(part, whole));
  }
  return text;
}

nlohmann::ordered_json as_json(const Said& said) {
  return {{"status", name(said.status)},
          {"title", said.title},
          {"evidence", said.evidence},
          {"cause", said.cause},
          {"fix", said.fix}};
}

}  // namespace

beeline::Result<Comparison> compare_reports(const std::vector<NamedText>& reports, SameHost same_host) {
  std::vector<HostReport> digested;
  for (const auto& report : reports) {
    BEELINE_TRY(const auto document, parse(report));
    digested.push_back(digest(report, document));
  }
  if (digested.empty()) return fail(Errc::invalid_argument, "there are no reports to compare");
  tell_apart(digested, same_host);
  Comparison out;
  out.reports = reports.size();
  std::map<std::string, std::set<std::string>> all;
  for (const auto& report : digested) {
    out.hosts.push_back(report.host);
    for (const auto& [check, values] : report.values)
      for (const auto& [what, value] : values) all[check].insert(what);
  }
  for (const auto& [check, whats] : all) {
    for (const auto& what : whats) add_difference(check, what, digested, out);
    add_shared(check, digested, out);
  }
  return out;
}

std::string to_text(const Comparison& comparison, const View& view) {
  const auto count = comparison.hosts.size();
  auto text = fmt::format("{} host{}{}: {}\n", count, count == 1 ? "" : "s",
                          comparison.reports > count ? fmt::format(", {} reports", comparison.reports) : "",
                          printable(hosts_text(comparison.hosts), whole));
  for (const auto& who : comparison.missing)
    text += fmt::format("did not answer: {}\n", printable(who, whole));
  text += "\n";
  for (const auto& difference : comparison.differences) text += show(difference, view);
  if (comparison.differences.empty()) text += "nothing differs\n";
  if (!comparison.shared.empty()) text += "\non all of them, in short:\n";
  for (const auto status : {Status::failure, Status::warning})
    for (const auto& shared : comparison.shared)
      if (shared.said.status == status)
        text +=
            fmt::format("{} {}: {}; {}\n", painted(status, view), printable(shared.check, whole),
                        printable(shared.said.cause.empty() ? shared.said.title : shared.said.cause, whole),
                        printable(shared.said.fix, whole));
  return text;
}

std::string to_json(const Comparison& comparison) {
  nlohmann::ordered_json document = {
      {"version", 1}, {"hosts", comparison.hosts}, {"missing", comparison.missing}};
  auto& differences = document["differences"] = nlohmann::ordered_json::array();
  for (const auto& difference : comparison.differences) {
    nlohmann::ordered_json row = {
        {"id", difference.check}, {"what", difference.what}, {"hosts", difference.hosts_by_value}};
    for (const auto& [status, said] : difference.examples) row["said"][status] = as_json(said);
    differences.push_back(std::move(row));
  }
  auto& shared = document["on_all_hosts"] = nlohmann::ordered_json::array();
  for (const auto& each : comparison.shared) {
    auto row = as_json(each.said);
    row["id"] = each.check;
    shared.push_back(std::move(row));
  }
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

int exit_status(const Comparison& comparison) {
  if (!comparison.missing.empty()) return 1;
  if (comparison.failed) return 3;
  return comparison.alarmed || !comparison.differences.empty() ? 2 : 0;
}

}  // namespace beeline::doctor
