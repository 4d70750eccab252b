// Logs: read in one piece and in several, the result is the same and fit for a terminal.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "doctor/log/diagnose.h"
#include "targets.h"

namespace beeline::fuzz {
namespace {

using namespace doctor::log;

void check_printable(const std::string& text) {
  BEELINE_CHECK(std::none_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && byte != '\n') || byte == 0x7F;
  }));
}

void check_evidence(const Diagnosis& diagnosis) {
  for (const Finding& finding : diagnosis.findings) {
    BEELINE_CHECK(!finding.evidence.empty() && !finding.kind.empty() && !finding.next.empty());
    for (const Evidence& evidence : finding.evidence)
      BEELINE_CHECK(evidence.line >= 1 && evidence.line <= std::max<std::uint64_t>(diagnosis.lines, 1));
  }
}

}  // namespace

void fuzz_doctor_log(Bytes input) {
  const std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  const Source source{"log", text};
  const Diagnosis whole = diagnose(std::span(&source, 1));
  check_evidence(whole);
  check_printable(render(whole, false, true));
  const std::string json = to_json(whole).dump();  // throws where a string is no UTF-8

  Reader reader;
  reader.start_source("log");
  const std::string_view view = text;
  for (std::size_t at = 0; at < view.size(); at += 7) reader.add(view.substr(at, 7));
  BEELINE_CHECK(to_json(reader.finish()).dump() == json);
}

}  // namespace beeline::fuzz
