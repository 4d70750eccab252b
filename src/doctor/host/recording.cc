#include "doctor/host/recording.h"

#include <fmt/format.h>

#include "doctor/host/text.h"

namespace beeline::doctor {

Reading Recorder::read(const Question& question) {
  const auto known = readings_.find(question);
  if (known != readings_.end()) return known->second;
  return readings_.emplace(question, host_.read(question)).first->second;
}

Reading Recording::read(const Question& question) {
  const auto known = readings_.find(question);
  if (known != readings_.end()) return known->second;
  Reading reading;
  reading.question = question;
  reading.access = Access::unreadable;
  reading.why = "it is not in this recording";
  return reading;
}

namespace {

// Sockets of other programs are nobody's business.
std::string only_roce_sockets(std::string_view table) {
  std::string kept;
  for (const auto& line : lines_of(table))
    if (contains(line, "local_address") || contains(line, ":12B7 ")) kept += line + "\n";
  return kept;
}

}  // namespace

Readings cleaned(const Readings& readings, Pseudonyms* pseudonyms) {
  Readings clean;
  for (const auto& [question, reading] : readings) {
    auto copy = reading;
    const bool binary = copy.value.find('\0') != std::string::npos;  // PCI configuration space
    if (question.name == "/proc/net/udp") copy.value = only_roce_sockets(copy.value);
    if (!binary) copy.value = without_secrets(copy.value);
    copy.why = without_secrets(copy.why);
    if (pseudonyms != nullptr && !binary) copy.value = pseudonyms->apply(copy.value);
    if (pseudonyms != nullptr && question == Question{Kind::fact, "hostname"}) copy.value = "host-1";
    if (pseudonyms != nullptr) copy.why = pseudonyms->apply(copy.why);
    clean.emplace(question, std::move(copy));
  }
  return clean;
}

}  // namespace beeline::doctor
