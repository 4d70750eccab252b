// The host that this process runs on.
#pragma once

#include <map>

#include "doctor/host/evidence.h"

namespace beeline::doctor {

class LiveHost : public Evidence {
 public:
  // `given`: facts that only the starter of the process may read (environment, hostname).
  explicit LiveHost(std::map<std::string, std::string> given) : given_(std::move(given)) {}
  Reading read(const Question& question) override;

 private:
  std::map<std::string, std::string> given_;
};

}  // namespace beeline::doctor
