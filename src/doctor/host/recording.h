// Recordings of a host: made there, examined elsewhere.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "doctor/host/evidence.h"
#include "doctor/host/secrets.h"

namespace beeline::doctor {

using Readings = std::map<Question, Reading>;

// Asks `host` each question once and remembers the answer, so that all checks see one state.
class Recorder : public Evidence {
 public:
  explicit Recorder(Evidence& host) : host_(host) {}
  Reading read(const Question& question) override;
  const Readings& readings() const { return readings_; }

 private:
  Evidence& host_;
  Readings readings_;
};

// Answers from what was recorded.
class Recording : public Evidence {
 public:
  explicit Recording(Readings readings) : readings_(std::move(readings)) {}
  Reading read(const Question& question) override;

 private:
  Readings readings_;
};

// Secrets removed; names and addresses replaced where `pseudonyms` is given.
Readings cleaned(const Readings& readings, Pseudonyms* pseudonyms);

// FILE.tar.zst
beeline::Result<void> write_recording(const std::string& path, const Readings& readings);
beeline::Result<Readings> read_recording(const std::string& path);

// A recording (a .tar.zst, or the directory that one was unpacked to), or a copy of a host's
// file tree, which holds files but no command output.
beeline::Result<std::unique_ptr<Evidence>> open_root(const std::string& path);

}  // namespace beeline::doctor
