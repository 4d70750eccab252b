// The one way in which a check learns anything about a host.
//
// A live host, a recording of one and a copied file tree answer the same questions, so a
// check cannot tell them apart. What is not there and what may not be read are different
// answers: a check that was refused says so instead of guessing.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace beeline::doctor {

enum class Kind : std::uint8_t {
  file,       // name: an absolute path; value: its contents
  directory,  // name: an absolute path; value: the names in it, sorted, one a line
  link,       // name: an absolute path; value: the path with every link followed
  command,    // name: the words, separated by one space; value: its standard output
  fact,       // name: see facts.h; value: what a system call says, as text
};

struct Question {
  Kind kind = Kind::file;
  std::string name;
  // The check takes the 0 that the compiler compares the order with for a pointer.
  auto operator<=>(const Question&) const = default;  // NOLINT(modernize-use-nullptr)
};

enum class Access : std::uint8_t { found, absent, unreadable };

struct Reading {
  Question question;
  Access access = Access::absent;
  std::string value;
  // Why it is absent or unreadable: the privilege, the program or the recording that is missing.
  std::string why;

  bool found() const { return access == Access::found; }
  bool unreadable() const { return access == Access::unreadable; }
};

class Evidence {
 public:
  virtual ~Evidence() = default;
  virtual Reading read(const Question& question) = 0;
};

// "/proc/swaps", "`ethtool -S eth0`", "environment": how a report names where something was read.
std::string name_of(const Question& question);
std::string_view kind_name(Kind kind);

}  // namespace beeline::doctor
