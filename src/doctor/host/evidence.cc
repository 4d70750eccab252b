#include "doctor/host/evidence.h"

namespace beeline::doctor {

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::file:
      return "file";
    case Kind::directory:
      return "directory";
    case Kind::link:
      return "link";
    case Kind::command:
      return "command";
    case Kind::fact:
      return "fact";
  }
  return "";
}

std::string name_of(const Question& question) {
  if (question.kind == Kind::command) return "`" + question.name + "`";
  if (question.kind == Kind::directory) return question.name + "/";
  return question.name;
}

}  // namespace beeline::doctor
