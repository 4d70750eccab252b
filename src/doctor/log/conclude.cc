#include "doctor/log/conclude.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "doctor/log/derive.h"
#include "doctor/log/text.h"

namespace beeline::doctor::log {
namespace {

constexpr std::size_t most_causes = 4, most_evidence = 3, most_named = 16;
constexpr double flap_matters_s = 600;

class Conclusion {
 public:
  explicit Conclusion(const Story& story) : story_(story), late_(who_is_late(story)) {
    for (const Event& event : story.events())
      if (is_symptom(event.kind) && rule(event.kind).rank == Class::timeout) waiting_.insert(event.rank);
  }
  Diagnosis reach();

 private:
  enum class Part : std::uint8_t { candidate, secondary, warning, none };

  Part part_of(const Event& event) const;
  bool by_launcher(const Event& event) const;
  bool was_handled(const Event& exception) const;
  bool is_awaited(const Event& root, const Event& timeout) const;
  int summary_order(const Event& one, const Event& other) const;
  bool earlier(const Event& one, const Event& other) const;
  const Event* first_failure() const;
  bool was_well_before(const Event& failure) const;
  bool may_be_overtaken(const Event& failure) const;
  Claim claim(const Event* first) const;
  Finding finding(const Event& event);
  void add_causes(const Event& event, Finding& finding);
  bool explains(const Event& event, const Event& failure) const;
  bool ruled_out(std::string_view cause, const Event& event) const;
  std::string phase(const Event& event) const;
  void add_consequences(const Event* first);
  Evidence evidence(const Event& event) const {
    return {story_.source(event.source), event.line, event.text};
  }

  const Story& story_;
  const Late late_;
  std::set<std::string> waiting_;  // ranks that say themselves that they waited for others
  Diagnosis diagnosis_;
  std::set<const Event*> used_;
};

// The launcher kills those that do not stop by themselves: no failure of theirs.
bool Conclusion::by_launcher(const Event& event) const {
  const Event* const forced = story_.first(Kind::fact_forced_kill);
  return event.kind == Kind::process_killed && forced != nullptr && story_.compare(*forced, event) <= 0 &&
         !event.kernel;
}

// Whoever trains on has handled its exception; and where nothing else went wrong, somebody did.
bool Conclusion::was_handled(const Event& exception) const {
  bool trouble = false;
  for (const Event& event : story_.events()) {
    if (event.kind == Kind::fact_traffic && event.rank == exception.rank && event.host == exception.host &&
        event.last_order > exception.order && event.source == exception.source)
      return true;
    const bool end =
        event.kind == Kind::fact_sigterm || event.kind == Kind::fact_exit || event.kind == Kind::fact_aborted;
    const bool failed = is_symptom(event.kind) && rule(event.kind).rank != Class::warning &&
                        &event != &exception && (event.kind != Kind::process_failed || event.code != -1);
    trouble = trouble || end || failed;
  }
  return !trouble;
}

Conclusion::Part Conclusion::part_of(const Event& event) const {
  if (!is_symptom(event.kind)) return Part::none;
  if (by_launcher(event)) return Part::none;
  switch (rule(event.kind).rank) {
    case Class::root:
    case Class::failure:
      // Derived from what hosts say of themselves, not from a failure.
      if (event.kind == Kind::version_mismatch && has(event.detail, " on ")) return Part::warning;
      return event.detail == "time unknown" && story_.job_lines() > 0 ? Part::warning : Part::candidate;
    case Class::timeout:
      return Part::candidate;
    case Class::secondary:
      if (event.kind != Kind::process_failed || event.code != -1) return Part::secondary;
      return was_handled(event) ? Part::none : Part::candidate;
    case Class::warning:
      return Part::warning;
  }
  return Part::none;
}

// A collective that times out began to wait long before. What happens by itself, elsewhere, goes before it,
// unless a clock says otherwise: the lines of several processes stand in a file in any order.
bool Conclusion::is_awaited(const Event& root, const Event& timeout) const {
  if (rule(timeout.kind).rank != Class::timeout || rule(root.kind).rank != Class::root) return false;
  if (story_.compares_by_clock(root, timeout)) return false;
  // Those that wait too long are killed in the end. Nobody else kills for memory.
  const bool for_memory = root.kernel || has(root.text, "oom") || has(root.text, "out of memory");
  if (root.kind == Kind::process_killed || root.kind == Kind::job_cancelled) return for_memory;
  if (root.kernel) return true;
  return !root.rank.empty() && waiting_.count(root.rank) == 0;
}

// mpirun collects what its processes say in the same words, and prints it when it likes: unless a clock
// tells, that is behind what a process says of itself.
int Conclusion::summary_order(const Event& one, const Event& other) const {
  if (story_.compares_by_clock(one, other)) return 0;
  const auto is_summary = [](const Event& event) { return event.kind == Kind::mpi_unreachable; };
  const auto speaks_for_itself = [](const Event& event) {
    return rule(event.kind).rank == Class::root || rule(event.kind).rank == Class::failure;
  };
  if (is_summary(one) && !is_summary(other) && speaks_for_itself(other)) return 1;
  if (is_summary(other) && !is_summary(one) && speaks_for_itself(one)) return -1;
  return 0;
}

bool Conclusion::earlier(const Event& one, const Event& other) const {
  if (is_awaited(one, other)) return true;
  if (is_awaited(other, one)) return false;
  if (const int order = summary_order(one, other); order != 0) return order < 0;
  if (const int order = story_.compare(one, other); order != 0) return order < 0;
  const auto rank = [](const Event& event) {
    return event.kind == Kind::process_failed ? Class::root : rule(event.kind).rank;
  };
  if (rank(one) != rank(other)) return rank(one) < rank(other);
  return one.order < other.order;
}

const Event* Conclusion::first_failure() const {
  const Event* first = nullptr;
  for (const Part part : {Part::candidate, Part::secondary}) {
    for (const Event& event : story_.events()) {
      if (part_of(event) != part) continue;
      // An exit status is what a launcher says at the end, whatever came before.
      if (first == nullptr ||
          (first->kind == Kind::process_failed && part == Part::secondary && event.kind != first->kind) ||
          (!(event.kind == Kind::process_failed && part == Part::secondary && first->kind != event.kind) &&
           earlier(event, *first)))
        first = &event;
    }
    if (first != nullptr) return first;
  }
  return nullptr;
}

// The other end gave no answer, or somebody outside ended the job: why, another log may say.
constexpr bool is_told_elsewhere(Kind kind) {
  return kind == Kind::completion_12 || kind == Kind::completion_13 || kind == Kind::modify_qp_110 ||
         kind == Kind::bootstrap_connect || kind == Kind::job_cancelled;
}

// Lines that are still to come may be of an earlier time, where several write at times of their own.
bool Conclusion::may_be_overtaken(const Event& failure) const {
  const bool timed =
      failure.stamps.has(Clock::date) || failure.stamps.has(Clock::epoch) || failure.stamps.has(Clock::day);
  return timed && (story_.ranks().size() > 1 || story_.hosts().size() > 1);
}

// Whether the log goes back to a time when nothing had failed yet: to the job's start, or to its progress.
bool Conclusion::was_well_before(const Event& failure) const {
  static constexpr Kind signs[] = {Kind::fact_started, Kind::fact_connected, Kind::fact_traffic,
                                   Kind::fact_bootstrap, Kind::fact_version};
  for (const Event& event : story_.events()) {
    const bool sign = std::find(std::begin(signs), std::end(signs), event.kind) != std::end(signs);
    if (sign && story_.compare(event, failure) < 0) return true;
  }
  return false;
}

Claim Conclusion::claim(const Event* first) const {
  if (diagnosis_.findings.empty()) return Claim::nothing;
  if (first == nullptr) return Claim::condition;
  // mpirun's summary says that two processes do not reach each other, not why.
  if (part_of(*first) == Part::secondary || rule(first->kind).rank == Class::timeout ||
      first->kind == Kind::mpi_unreachable)
    return Claim::consequence;
  // What a kernel alone says is about no job yet.
  const bool of_a_job = std::any_of(story_.events().begin(), story_.events().end(), [&](const Event& event) {
    const Part part = part_of(event);
    return !event.kernel && (part == Part::candidate || part == Part::secondary);
  });
  if (first->kernel && story_.job_lines() == 0 && !of_a_job) return Claim::condition;
  const bool is_final =
      !first->cut && was_well_before(*first) && !is_told_elsewhere(first->kind) && !may_be_overtaken(*first);
  return is_final ? Claim::first_failure : Claim::first_seen;
}

// Whether the job had moved data when it failed: a wrong path shows at once.
std::string Conclusion::phase(const Event& event) const {
  const Event* const traffic = story_.first(Kind::fact_traffic);
  if (traffic != nullptr && story_.compare(*traffic, event) < 0) return "after traffic had run";
  for (const Event* const work : story_.all(Kind::fact_last_work))
    if (work->completed > 8) return "after traffic had run";
  if (has(event.text, "ccnt=") && !has(event.text, "ccnt=0")) return "after traffic had run";
  const bool context = story_.first(Kind::fact_connected) != nullptr || has(event.text, "ccnt=0");
  return context ? "before the first traffic" : "";
}

// Not what happened long before or clearly after.
bool Conclusion::explains(const Event& event, const Event& failure) const {
  if (&event == &failure) return false;
  if (event.kind == failure.kind && !has(event.text, "oom") && !has(event.text, "out of memory"))
    return false;
  if (!is_symptom(event.kind)) return true;
  if (rule(event.kind).rank != Class::root && rule(event.kind).rank != Class::timeout) return true;
  for (const Clock clock : {Clock::date, Clock::epoch, Clock::day}) {
    if (!event.stamps.has(clock) || !failure.stamps.has(clock)) continue;
    const double gap = failure.stamps[clock] - event.stamps[clock];
    return gap > -60 && gap < flap_matters_s;
  }
  return event.source != failure.source || event.order < failure.order;
}

// Causes that what is known speaks against.
bool Conclusion::ruled_out(std::string_view cause, const Event& event) const {
  const bool about_gid = cause == "gid-zero" || cause == "gid-link-local" || cause == "gid-mismatch";
  const bool gids_known = !event.local_gid.empty() && !event.remote_gid.empty();
  const bool worked = phase(event) == "after traffic had run";
  return (about_gid && gids_known) || (worked && (about_gid || cause == "gid-v1" || cause == "path")) ||
         cause == "preprocessing" || (cause == "ib-disabled");
}

void Conclusion::add_causes(const Event& event, Finding& finding) {
  std::vector<Cause> shown, possible;
  for (const CauseRule& row : rule(event.kind).causes) {
    Cause cause{std::string(row.id), std::string(row.text), {}};
    for (const Kind kind : row.evidence) {
      if (kind == Kind::count_) continue;
      for (const Event& other : story_.events()) {
        if (other.kind != kind || cause.evidence.size() >= most_evidence || !explains(other, event)) continue;
        if (part_of(other) == Part::none && is_symptom(kind)) continue;
        cause.evidence.push_back(evidence(other));
        used_.insert(&other);
      }
    }
    if (event.kind == Kind::watchdog_timeout && row.id == late_.cause) {
      cause.text = late_.text;
      for (const Event* const other : late_.evidence) cause.evidence.push_back(evidence(*other));
      shown.insert(shown.begin(), std::move(cause));
      continue;
    }
    if (!cause.evidence.empty()) {
      shown.push_back(std::move(cause));
    } else if (!ruled_out(cause.id, event)) {
      possible.push_back(std::move(cause));
    }
  }
  // Without evidence, a wrong path is likelier at the start, and loss or a dead peer later.
  const bool running = phase(event) == "after traffic had run";
  std::stable_sort(possible.begin(), possible.end(), [&](const Cause& one, const Cause& other) {
    const auto late = [](const Cause& cause) {
      return cause.id == "packet-loss" || cause.id == "dead-peer" || cause.id == "port-error";
    };
    const auto early = [](const Cause& cause) { return cause.id == "path"; };
    return running ? late(one) && !late(other)
                   : early(one) && !early(other) && !running && !phase(event).empty();
  });
  for (auto* const causes : {&shown, &possible})
    for (Cause& cause : *causes)
      if (finding.causes.size() < most_causes) finding.causes.push_back(std::move(cause));
}

Finding Conclusion::finding(const Event& event) {
  const Rule& row = rule(event.kind);
  Finding finding;
  finding.kind = row.id;
  finding.severity = row.severity;
  finding.title = what_happened(event);
  finding.rank = event.rank;
  finding.host = event.host;
  finding.device = event.device;
  finding.peer = event.peer.empty() ? event.remote_gid : event.peer;
  finding.when = event.when;
  finding.evidence.push_back(evidence(event));
  finding.next = row.next;
  finding.source = row.source;
  finding.count = 0;
  std::set<std::string> others;
  for (const Event& other : story_.events()) {
    if (other.kind != event.kind || part_of(other) == Part::none) continue;
    finding.count += other.count;
    used_.insert(&other);
    // The summary of torchrun knows the rank that a line about a process does not, and the program that of
    // the GPU which the kernel complains about.
    const bool of_process = event.kind == Kind::process_killed || event.kind == Kind::process_crashed ||
                            event.kind == Kind::process_failed ||
                            (event.kind == Kind::gpu_error && event.kernel && event.host == other.host);
    if (of_process && finding.rank.empty() && !other.rank.empty() &&
        (finding.host.empty() || finding.host == other.host)) {
      finding.rank = other.rank;
      finding.host = other.host;
    }
    if (of_process && finding.host.empty() && finding.rank == other.rank) finding.host = other.host;
    const std::string where = other.rank.empty() ? other.host : fmt::format("rank {}", other.rank);
    if (!where.empty() && other.rank != event.rank && others.size() < most_named) others.insert(where);
  }
  finding.also_ranks.assign(others.begin(), others.end());
  if (event.kind == Kind::watchdog_timeout && !late_.text.empty()) {
    finding.title += ": " + late_.text;
    finding.rank = late_.rank;
    finding.host = late_.host;
    if (late_.rank != event.rank) finding.device.clear();
  } else if (event.kind == Kind::completion_12) {
    if (const std::string when = phase(event); !when.empty()) finding.title += ", " + when;
  }
  for (std::string* const text :
       {&finding.title, &finding.rank, &finding.host, &finding.device, &finding.peer})
    *text = printable(*text, 300);
  auto& others_too = finding.also_ranks;
  others_too.erase(std::remove(others_too.begin(), others_too.end(), fmt::format("rank {}", finding.rank)),
                   others_too.end());
  add_causes(event, finding);
  return finding;
}

void Conclusion::add_consequences(const Event* first) {
  struct Follow {
    Kind kind;
    const char* words;
  };
  static constexpr Follow follows[] = {
      {Kind::completion_5, "requests flushed (completion status 5)"},
      {Kind::connection_closed, "connections closed by a peer"},
      {Kind::fact_aborted, "survivors gave up"},
      {Kind::process_failed, "processes ended with an exit status"},
      {Kind::fact_exit, "processes ended by the launcher"},
      {Kind::fact_sigterm, "the launcher stopped the others (SIGTERM)"},
      {Kind::fact_forced_kill, "the launcher killed what did not stop (SIGKILL)"},
  };
  for (const Follow& follow : follows) {
    if (first != nullptr && follow.kind == first->kind) continue;
    std::uint64_t times = 0;
    const Event* one = nullptr;
    for (const Event& event : story_.events()) {
      if (event.kind != follow.kind) continue;
      times += event.count;
      if (one == nullptr) one = &event;
    }
    if (one != nullptr)
      diagnosis_.consequences.push_back(
          {fmt::format("{}, {} {}", follow.words, times, times == 1 ? "time" : "times"), {evidence(*one)}});
  }
}

Diagnosis Conclusion::reach() {
  const Event* const first = first_failure();
  std::set<Kind> named;
  if (first != nullptr) {
    named.insert(first->kind);
    diagnosis_.findings.push_back(finding(*first));
    // A link that came back in time hurt nobody.
    const bool alone = std::none_of(story_.events().begin(), story_.events().end(), [&](const Event& event) {
      return event.kind != Kind::port_error &&
             (part_of(event) == Part::candidate || part_of(event) == Part::secondary);
    });
    if (first->kind == Kind::port_error && alone && story_.first(Kind::fact_port_up) != nullptr)
      diagnosis_.findings.front().severity = Severity::warning;
  }
  for (const Part part : {Part::candidate, Part::warning}) {
    std::vector<const Event*> rest;
    for (const Event& event : story_.events())
      if (part_of(event) == part) rest.push_back(&event);
    std::stable_sort(rest.begin(), rest.end(),
                     [](const Event* one, const Event* other) { return one->order < other->order; });
    for (const Event* const event : rest) {
      if (used_.count(event) != 0 || !named.insert(event->kind).second) continue;
      // Two ends of one error: the responder's event and the requester's status.
      if (event->kind == Kind::access_violation && first != nullptr && is_completion(first->kind)) continue;
      diagnosis_.findings.push_back(finding(*event));
      if (event->detail == "time unknown") diagnosis_.findings.back().severity = Severity::warning;
    }
  }
  const bool failed = std::any_of(diagnosis_.findings.begin(), diagnosis_.findings.end(),
                                  [](const Finding& one) { return one.severity == Severity::failure; });
  if (first != nullptr || failed) add_consequences(first);
  const auto begin = diagnosis_.findings.begin() + (first != nullptr ? 1 : 0);
  if (first == nullptr)
    std::stable_sort(begin, diagnosis_.findings.end(),
                     [](const Finding& one, const Finding& other) { return one.severity > other.severity; });
  diagnosis_.claim = claim(first);
  return std::move(diagnosis_);
}

}  // namespace

Diagnosis conclude(const Story& story) { return Conclusion(story).reach(); }

}  // namespace beeline::doctor::log
