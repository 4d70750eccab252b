#include "doctor/log/story.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "doctor/log/text.h"

namespace beeline::doctor::log {
namespace {

constexpr std::size_t most_events = 20000, most_names = 65536;
constexpr double window_slack_s = 120;
constexpr double early_boot_s = 300;  // links come up and down while a host boots

// Events with the same are one, counted.
std::string identity(const Event& event) {
  const bool by_detail = event.kind == Kind::fact_gid_index || event.kind == Kind::fact_traffic_class ||
                         event.kind == Kind::fact_version || event.kind == Kind::fact_bootstrap ||
                         event.kind == Kind::fact_channel_ib || event.kind == Kind::fact_channel_ib_gdr;
  const bool by_sequence = event.kind == Kind::watchdog_timeout || event.kind == Kind::fact_last_work;
  return fmt::format("{} {} {} {} {} {} {} {}", static_cast<int>(event.kind), event.code, event.rank,
                     event.host, event.pid, event.rank.empty() && event.host.empty() ? event.source : 0u,
                     by_detail ? event.detail : std::string(), by_sequence ? event.sequence : 0);
}

}  // namespace

std::uint32_t Story::add_source(std::string_view name) {
  sources_.emplace_back(name);
  return static_cast<std::uint32_t>(sources_.size() - 1);
}

void Story::saw(const Line& line) {
  if (line.stream != 0 && streams_.size() < most_names && streams_.insert(line.stream).second) {
    if (!line.rank.empty()) ranks_.emplace(line.rank);
    if (!line.host.empty()) hosts_.emplace(line.host);
    if (line.nccl) nccl_hosts_.emplace(line.host);
    if (line.nccl && !line.rank.empty()) note_host_of_rank(std::string(line.rank), std::string(line.host));
    if (line.nccl) nccl_pids_.emplace(std::string(line.host) + " " + std::string(line.pid));
  }
  watch_front(line);
  if (line.kernel) return;
  if (line.nccl || !line.rank.empty() || !line.when.empty()) ++job_lines_;
  for (std::size_t clock = 0; clock < clocks; ++clock) {
    if (!line.stamps.has(static_cast<Clock>(clock))) continue;
    const double at = line.stamps.seconds[clock];
    begin_[clock] = has_window_[clock] ? std::min(begin_[clock], at) : at;
    end_[clock] = has_window_[clock] ? std::max(end_[clock], at) : at;
    has_window_[clock] = true;
  }
}

// Whoever copies a log may put one time in front of all its lines: that of the copy.
void Story::watch_front(const Line& line) {
  if (!has_lines_) still_ = line.front;
  has_lines_ = true;
  if (still_ && (!line.front || line.front->clock != still_->clock || line.front->seconds != still_->seconds))
    still_.reset();
  if (line.kernel) return;
  for (std::size_t clock = 0; clock < clocks; ++clock) {
    if (!line.inner.has(static_cast<Clock>(clock))) continue;
    const double at = line.inner.seconds[clock];
    inner_begin_.seconds[clock] =
        std::fmin(inner_begin_.seconds[clock], at);  // of NaN and a number: the number
    inner_end_.seconds[clock] = std::fmax(inner_end_.seconds[clock], at);
  }
}

void Story::drop_clock_that_stands() {
  if (!still_) return;
  const auto clock = static_cast<std::size_t>(still_->clock);
  for (Event& event : events_) event.stamps.seconds[clock] = event.inner.seconds[clock];
  has_window_[clock] = inner_begin_.has(still_->clock);
  begin_[clock] = inner_begin_.seconds[clock];
  end_[clock] = inner_end_.seconds[clock];
}

std::int64_t Story::world_of(const std::string& host) const {
  std::int64_t most = 0;
  for (const auto& [process, known] : rank_of_)
    if (process.starts_with(host + " ")) most = std::max(most, known.first);
  return most;
}

std::optional<std::size_t> Story::add(Event&& event) {
  if (event.kind == Kind::fact_rank && rank_of_.size() < most_names) {
    auto& known = rank_of_[event.host + " " + event.pid];
    if (known.second.empty() || event.code >= known.first) known = {event.code, event.rank};
    world_ = std::max(world_, event.code);
    note_host_of_rank(event.rank, event.host);
    if (ranks_.size() < most_names) ranks_.insert(event.rank);
    if (hosts_.size() < most_names) hosts_.insert(event.host);
    return std::nullopt;
  }
  // A launcher names ranks that say nothing themselves.
  if (!event.rank.empty() && ranks_.size() < most_names) ranks_.insert(event.rank);
  const auto [place, fresh] = known_.try_emplace(identity(event), events_.size());
  if (!fresh) {
    repeat(place->second, event.order);
    // What the last one says of progress counts.
    if (event.kind == Kind::fact_last_work) events_[place->second] = std::move(event);
    return place->second;
  }
  if (events_.size() >= most_events) {
    known_.erase(place);
    return std::nullopt;
  }
  events_.push_back(std::move(event));
  return events_.size() - 1;
}

void Story::note_host_of_rank(const std::string& rank, const std::string& host) {
  if (host.empty() || host_of_rank_.size() >= most_names) return;
  const auto [place, fresh] = host_of_rank_.try_emplace(rank, host);
  if (!fresh && place->second != host) place->second.clear();
}

// Where its line does not say it: from the rank, or from the heading that it stands under.
void Story::name_host(Event& event) const {
  if (!event.host.empty()) return;
  if (const auto known = host_of_rank_.find(event.rank); known != host_of_rank_.end())
    event.host = known->second;
  if (!event.rank.empty()) return;
  for (std::size_t start = 0; start < event.section.size();) {
    const auto end = std::min(event.section.find_first_of(" :,=[]()<>", start), event.section.size());
    const auto word = event.section.substr(start, end - start);
    if (hosts_.count(word) != 0) event.host = word;
    start = end + 1;
  }
}

void Story::name_ranks() {
  std::unordered_map<std::string, std::string>
      rank_of_pid;  // torchrun's summary has no host in its first lines
  for (const Event& event : events_)
    if (!event.rank.empty() && !event.pid.empty()) rank_of_pid[event.pid] = event.rank;
  for (Event& event : events_) {
    if (!event.rank.empty() || event.pid.empty()) continue;
    const auto known = rank_of_.find(event.host + " " + event.pid);
    if (known != rank_of_.end()) {
      event.rank = known->second.second;
    } else if (const auto by_pid = rank_of_pid.find(event.pid); by_pid != rank_of_pid.end()) {
      event.rank = by_pid->second;
    }
  }
}

// Kernel messages of other times are about other jobs. `known` is false where no clock tells.
bool Story::in_job(const Event& event, bool& known) const {
  known = true;
  bool comparable = false;
  for (std::size_t clock = 0; clock < clocks; ++clock) {
    if (!event.stamps.has(static_cast<Clock>(clock)) || !has_window_[clock] ||
        static_cast<Clock>(clock) == Clock::boot)
      continue;
    comparable = true;
    const double at = event.stamps.seconds[clock];
    if (at >= begin_[clock] - window_slack_s && at <= end_[clock] + window_slack_s) return true;
  }
  if (comparable) return false;
  known = job_lines_ == 0;
  return !event.stamps.has(Clock::boot) || event.stamps[Clock::boot] > early_boot_s;
}

void Story::settle() {
  drop_clock_that_stands();
  name_ranks();
  std::vector<Event> kept;
  for (Event& event : events_) {
    bool known = true;
    if (event.kernel && !in_job(event, known)) continue;
    if (!known) event.detail = "time unknown";
    kept.push_back(std::move(event));
  }
  events_ = std::move(kept);
  for (Event& event : events_) name_host(event);
  std::array<std::size_t, clocks> timed{};
  for (const Event& event : events_)
    for (std::size_t clock = 0; clock < clocks; ++clock)
      if (is_symptom(event.kind) && event.stamps.has(static_cast<Clock>(clock))) ++timed[clock];
  const auto most = std::max_element(timed.begin(), timed.end());
  has_clock_ = *most > 0;
  clock_ = static_cast<Clock>(most - timed.begin());
}

std::optional<Clock> Story::telling_clock(const Event& one, const Event& other) const {
  for (const Clock clock : {clock_, Clock::date, Clock::epoch, Clock::day, Clock::boot})
    if (has_clock_ && one.stamps.has(clock) && other.stamps.has(clock) &&
        one.stamps[clock] != other.stamps[clock])
      return clock;
  return std::nullopt;
}

int Story::compare(const Event& one, const Event& other) const {
  if (const auto clock = telling_clock(one, other)) return one.stamps[*clock] < other.stamps[*clock] ? -1 : 1;
  if (one.source != other.source) return 0;
  return one.order < other.order ? -1 : one.order > other.order ? 1 : 0;
}

const Event* Story::first(Kind kind) const {
  const Event* earliest = nullptr;
  for (const Event& event : events_)
    if (event.kind == kind && (earliest == nullptr || compare(event, *earliest) < 0)) earliest = &event;
  return earliest;
}

std::vector<const Event*> Story::all(Kind kind) const {
  std::vector<const Event*> found;
  for (const Event& event : events_)
    if (event.kind == kind) found.push_back(&event);
  return found;
}

}  // namespace beeline::doctor::log
