#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "doctor/log/diagnose.h"

namespace beeline::doctor::log {
namespace {

constexpr std::string_view bold_red = "\x1b[1;31m", bold_yellow = "\x1b[1;33m", bold = "\x1b[1m",
                           dim = "\x1b[2m", plain = "\x1b[0m";

class Page {
 public:
  explicit Page(bool colour) : colour_(colour) {}
  std::string paint(std::string_view code, std::string_view text) const {
    return colour_ ? fmt::format("{}{}{}", code, text, plain) : std::string(text);
  }
  void line(std::string_view text) { text_ += fmt::format("{}\n", text); }
  std::string take() { return std::move(text_); }

 private:
  bool colour_;
  std::string text_;
};

std::string where(const Finding& finding) {
  std::string text;
  const auto add = [&](std::string_view word, std::string_view value) {
    if (!value.empty()) text += fmt::format("{}{}{}", text.empty() ? "" : ", ", word, value);
  };
  add("rank ", finding.rank);
  add("host ", finding.host);
  add("", finding.device);
  add("towards ", finding.peer);
  add("at ", finding.when);
  return text;
}

std::string place(const Evidence& evidence) { return fmt::format("{}:{}", evidence.source, evidence.line); }

std::string others(const Finding& finding) {
  std::string text;
  for (const std::string& name : finding.also_ranks) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void in_full(Page& page, const Finding& finding) {
  if (const std::string at = where(finding); !at.empty()) page.line("  where  " + at);
  for (const Evidence& evidence : finding.evidence)
    page.line(fmt::format("  line   {}  {}", place(evidence), page.paint(dim, evidence.text)));
  if (finding.count > 1)
    page.line(fmt::format("  seen   {} times{}{}", finding.count,
                          finding.also_ranks.empty() ? "" : ", also on ", others(finding)));
  for (std::size_t i = 0; i < finding.causes.size(); ++i) {
    const Cause& cause = finding.causes[i];
    const bool same_line =
        !cause.evidence.empty() && place(cause.evidence.front()) == place(finding.evidence.front());
    const std::string_view seen = cause.evidence.empty() ? ""
                                  : same_line            ? " (seen in the same line)"
                                                         : "; seen:";
    page.line(fmt::format("  {}{}. {}{}", i == 0 ? "cause  " : "       ", i + 1, cause.text, seen));
    for (const Evidence& evidence : cause.evidence)
      if (place(evidence) != place(finding.evidence.front()))
        page.line(fmt::format("            {}  {}", place(evidence), page.paint(dim, evidence.text)));
  }
  page.line("  next   " + page.paint(bold, finding.next));
  page.line(fmt::format("  more   docs/symptoms/{}.md ({})", finding.kind, finding.source));
}

std::string_view label(Severity severity) {
  return severity == Severity::failure ? "failure" : severity == Severity::warning ? "warning" : "note";
}

std::string heading(const Diagnosis& diagnosis) {
  const Finding& first = diagnosis.findings.front();
  switch (diagnosis.claim) {
    case Claim::first_failure:
      return first.severity == Severity::failure ? "First failure: " : "Warning: ";
    case Claim::first_seen:
      return first.severity == Severity::failure ? "First failure in here: " : "Warning: ";
    case Claim::consequence:
      return "Seen, but what caused it is not in here: ";
    case Claim::condition:
    case Claim::nothing:
      break;
  }
  return first.severity == Severity::failure ? "Wrong: " : "Warning: ";
}

// What lines that are missing could change.
std::string_view reservation(Claim claim) {
  switch (claim) {
    case Claim::first_seen:
      return "lines that are not in here (from before, of the other end, of the kernel) may tell of an "
             "earlier one";
    case Claim::condition:
      return "no failure of a job is in here";
    default:
      return {};
  }
}

}  // namespace

std::string render(const Diagnosis& diagnosis, bool colour, bool all) {
  Page page(colour);
  page.line(fmt::format("{} lines, {} ranks, {} hosts", diagnosis.lines, diagnosis.ranks, diagnosis.hosts));
  if (diagnosis.nothing_known()) {
    page.line("nothing known in here");
    return page.take();
  }
  for (std::size_t i = 0; i < diagnosis.findings.size(); ++i) {
    const Finding& finding = diagnosis.findings[i];
    const auto code = finding.severity == Severity::failure ? bold_red : bold_yellow;
    if (i == 0) {
      page.line(page.paint(code, heading(diagnosis) + finding.title));
      if (const auto words = reservation(diagnosis.claim); !words.empty())
        page.line(fmt::format("  but    {}", words));
      in_full(page, finding);
    } else {
      const std::string at = where(finding);
      page.line(fmt::format("{}: {}{} [{}]",
                            page.paint(code, fmt::format("Also, {}", label(finding.severity))), finding.title,
                            at.empty() ? "" : " (" + at + ")", place(finding.evidence.front())));
      if (all) in_full(page, finding);
    }
  }
  for (const Consequence& consequence : diagnosis.consequences)
    page.line(
        fmt::format("Followed: {}, first in {}", consequence.text, place(consequence.evidence.front())));
  return page.take();
}

namespace {

nlohmann::json json_of(const std::vector<Evidence>& evidence) {
  auto list = nlohmann::json::array();
  for (const Evidence& one : evidence)
    list.push_back({{"source", one.source}, {"line", one.line}, {"text", one.text}});
  return list;
}

nlohmann::json json_of(const Finding& finding) {
  auto causes = nlohmann::json::array();
  for (const Cause& cause : finding.causes)
    causes.push_back({{"id", cause.id}, {"text", cause.text}, {"evidence", json_of(cause.evidence)}});
  return {{"kind", finding.kind},
          {"severity", label(finding.severity)},
          {"title", finding.title},
          {"rank", finding.rank},
          {"host", finding.host},
          {"device", finding.device},
          {"peer", finding.peer},
          {"when", finding.when},
          {"count", finding.count},
          {"also", finding.also_ranks},
          {"evidence", json_of(finding.evidence)},
          {"causes", causes},
          {"next", finding.next},
          {"source", finding.source},
          {"page", "docs/symptoms/" + finding.kind + ".md"}};
}

}  // namespace

std::string_view name_of(Claim claim) {
  static constexpr std::string_view names[] = {"nothing-known", "condition", "consequence", "first-seen",
                                               "first-failure"};
  return names[static_cast<std::size_t>(claim)];
}

nlohmann::json to_json(const Diagnosis& diagnosis) {
  auto findings = nlohmann::json::array();
  for (const Finding& finding : diagnosis.findings) findings.push_back(json_of(finding));
  auto consequences = nlohmann::json::array();
  for (const Consequence& one : diagnosis.consequences)
    consequences.push_back({{"text", one.text}, {"evidence", json_of(one.evidence)}});
  return {{"version", 1},
          {"claim", name_of(diagnosis.claim)},
          {"findings", findings},
          {"consequences", consequences},
          {"lines", diagnosis.lines},
          {"bytes", diagnosis.bytes},
          {"ranks", diagnosis.ranks},
          {"hosts", diagnosis.hosts}};
}

}  // namespace beeline::doctor::log
