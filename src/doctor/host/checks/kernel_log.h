// The kernel's log, for checks that look for a message.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/host/case.h"

namespace beeline::doctor {

class KernelLog {
 public:
  explicit KernelLog(Case& c);
  // Has said "unreadable" when not.
  bool readable() const { return reading_.found(); }
  // Lines that contain one of `parts`.
  std::vector<std::string> find(const std::vector<std::string_view>& parts) const;
  // The last of `hits`, and how many there are.
  std::string show(const std::vector<std::string>& hits) const;
  std::string nothing() const;

 private:
  Reading reading_;
  std::vector<std::string> lines_;
};

}  // namespace beeline::doctor
