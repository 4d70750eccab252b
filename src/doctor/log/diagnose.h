// Says what the logs of a job mean: what happened, on which rank and host, who failed first,
// why, with the lines that show it, and what to run next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace beeline::doctor::log {

// One log, in memory. `name` is what the diagnosis calls it: a path, or "stdin".
struct Source {
  std::string name;
  std::string_view text;
};

// A line that shows something. `text` is cut to a readable length and has no control characters.
struct Evidence {
  std::string source;
  std::uint64_t line = 0;  // from 1
  std::string text;
};

struct Cause {
  std::string id;  // often a kind itself ("gid-link-local"), with a page of its own
  std::string text;
  std::vector<Evidence> evidence;  // empty: known to cause this, but nothing in the logs says so
};

enum class Severity : std::uint8_t { note, warning, failure };

// One thing that happened. `kind` is stable, and the name of its page: docs/symptoms/KIND.md.
struct Finding {
  std::string kind;
  Severity severity = Severity::failure;
  std::string title;  // one sentence, with the numbers in words
  std::string rank;   // "3"; empty when no line says it
  std::string host;
  std::string device;  // of the card, "mlx5_2:1"
  std::string peer;    // the other end, as the log names it
  std::string when;    // as the log writes it
  std::vector<Evidence> evidence;
  std::vector<Cause> causes;            // the likeliest first
  std::string next;                     // the next command to run
  std::string source;                   // who says so: a public report, a specification, a manual
  std::uint64_t count = 1;              // how often it was seen
  std::vector<std::string> also_ranks;  // other ranks (or hosts) with the same
};

// What came after and because of the first failure.
struct Consequence {
  std::string text;  // "completion status 5 (flushed) on 6 ranks"
  std::vector<Evidence> evidence;
};

// What the first finding is. Lines that are missing, before or behind, can make a claim stronger and
// put something else in its place; only `first_failure` stays what it is.
enum class Claim : std::uint8_t {
  nothing,        // no finding
  condition,      // something is wrong on a host or on the way; no failure of a job follows in here
  consequence,    // somebody waited, or was cut off, by a failure that is not in here
  first_seen,     // the first failure in here, but lines that are missing may tell of an earlier one
  first_failure,  // what is in front of it shows the job starting or running well, and no line behind it
                  // can be of an earlier time or tell why
};

struct Diagnosis {
  Claim claim = Claim::nothing;
  std::vector<Finding> findings;  // the first failure first, then by severity; empty: nothing known
  std::vector<Consequence> consequences;
  std::uint64_t lines = 0, bytes = 0;
  std::uint64_t ranks = 0, hosts = 0;  // as many as the logs name

  bool nothing_known() const { return findings.empty(); }
};

// Takes logs in pieces of any size, in time linear in their bytes and in bounded memory.
class Reader {
 public:
  Reader();
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  void start_source(std::string_view name);  // ends the one before
  void add(std::string_view piece);
  Diagnosis finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

Diagnosis diagnose(std::span<const Source> sources);

// About ten lines. `all` shows every finding in full, not only the first.
std::string render(const Diagnosis& diagnosis, bool colour, bool all = false);
// "first-failure", "condition" and so on.
std::string_view name_of(Claim claim);
// {"version":1, "claim":"…", "findings":[…], "consequences":[…], "lines":…}
nlohmann::json to_json(const Diagnosis& diagnosis);
// For an exit status: the worst severity; nothing when there is no finding.
std::optional<Severity> worst(const Diagnosis& diagnosis);

// Every kind that a finding can have.
std::vector<std::string_view> kinds();

}  // namespace beeline::doctor::log
