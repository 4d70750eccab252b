// A host made of text, for tests.
#pragma once

#include <map>
#include <set>
#include <string>

#include "doctor/host/evidence.h"
#include "doctor/host/text.h"

namespace beeline::doctor {

class Tree : public Evidence {
 public:
  std::map<std::string, std::string> files, links, commands, facts;
  std::set<std::string> refused;  // names that may not be read

  void remove_below(const std::string& path) {
    for (auto* table : {&files, &links})
      for (auto i = table->begin(); i != table->end();)
        i = starts_with(i->first, path) ? table->erase(i) : std::next(i);
  }

  Reading read(const Question& question) override {
    Reading reading;
    reading.question = question;
    if (refused.count(question.name) != 0) {
      reading.access = Access::unreadable;
      reading.why = "Permission denied (uid 1000)";
      return reading;
    }
    if (question.kind == Kind::command)
      return look_up(reading, commands, question.name, "the program is not installed here");
    if (question.kind == Kind::fact) return look_up(reading, facts, question.name, "");
    const auto path = resolve(question.name);
    if (question.kind == Kind::file) return look_up(reading, files, path, "");
    std::set<std::string> names;
    for (const auto* table : {&files, &links})
      for (auto i = table->lower_bound(path + "/"); i != table->end() && starts_with(i->first, path + "/");
           ++i)
        names.insert(i->first.substr(path.size() + 1, i->first.find('/', path.size() + 1) - path.size() - 1));
    if (question.kind == Kind::link && (!names.empty() || files.count(path) != 0)) {
      reading.access = Access::found;
      reading.value = path;
    }
    if (question.kind == Kind::directory && !names.empty()) {
      reading.access = Access::found;
      for (const auto& name : names) reading.value += name + "\n";
    }
    return reading;
  }

 private:
  static Reading look_up(Reading reading, const std::map<std::string, std::string>& table,
                         const std::string& name, const char* missing) {
    const auto found = table.find(name);
    if (found != table.end()) {
      reading.access = Access::found;
      reading.value = found->second;
    } else if (*missing != '\0') {
      reading.access = Access::unreadable;
      reading.why = missing;
    }
    return reading;
  }

  // Follows links in any part of the path.
  std::string resolve(const std::string& name) const {
    std::string path;
    for (const auto& part : split(name, "/")) {
      path += "/" + part;
      for (auto found = links.find(path); found != links.end(); found = links.find(path))
        path = found->second;
    }
    return path;
  }
};

}  // namespace beeline::doctor
