// One check at work: it reads through this, and says here what it found.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "doctor/host/check.h"
#include "doctor/host/evidence.h"

namespace beeline::doctor {

// "PATH = value": how a reading is shown as evidence; long values are shortened.
std::string cite(const Reading& reading);
// The same with only one line of a long output.
std::string cite(const Reading& reading, std::string_view line);

class Case {
 public:
  explicit Case(Evidence& evidence) : evidence_(evidence) {}

  Reading file(const std::string& path) { return read({Kind::file, path}); }
  Reading directory(const std::string& path) { return read({Kind::directory, path}); }
  Reading link(const std::string& path) { return read({Kind::link, path}); }
  Reading command(const std::string& words) { return read({Kind::command, words}); }
  Reading fact(const std::string& name) { return read({Kind::fact, name}); }
  std::vector<std::string> names_in(const std::string& path);
  // Trimmed contents of a file; nothing if it is not there or not readable.
  std::optional<std::string> text(const std::string& path);

  void pass(std::string evidence);
  void warn(std::string evidence, std::string cause, std::string fix);
  void fail(std::string evidence, std::string cause, std::string fix);
  void not_applicable(std::string why);
  void unreadable(const Reading& reading);
  void compare(const std::string& what, const std::string& value) { compare_[what] = value; }

  Result result(const Check& check) &&;

 private:
  Reading read(const Question& question);

  Evidence& evidence_;
  std::vector<Finding> findings_;
  std::map<std::string, std::string> compare_;
  std::vector<Reading> trail_;
  std::set<Question> asked_;
};

}  // namespace beeline::doctor
