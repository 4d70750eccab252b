#include "doctor/host/checks/kernel_log.h"

#include <fmt/format.h>

#include "doctor/host/text.h"

namespace beeline::doctor {

KernelLog::KernelLog(Case& c) : reading_(c.command("dmesg")) {
  if (!reading_.found())
    c.unreadable(reading_);
  else
    lines_ = lines_of(reading_.value);
}

std::vector<std::string> KernelLog::find(const std::vector<std::string_view>& parts) const {
  std::vector<std::string> hits;
  for (const auto& line : lines_)
    for (const auto& part : parts)
      if (contains(line, part)) {
        hits.push_back(line);
        break;
      }
  return hits;
}

std::string KernelLog::show(const std::vector<std::string>& hits) const {
  return fmt::format("{} ({} such line{})", cite(reading_, hits.back()), hits.size(),
                     hits.size() == 1 ? "" : "s");
}

std::string KernelLog::nothing() const {
  return fmt::format("nothing of it in the {} lines of {}", lines_.size(), name_of(reading_.question));
}

}  // namespace beeline::doctor
