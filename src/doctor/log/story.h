// All that the logs say, brought into an order: who is who, and what came before what.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "doctor/log/blocks.h"
#include "doctor/log/event.h"

namespace beeline::doctor::log {

class Story {
 public:
  std::uint32_t add_source(std::string_view name);
  const std::string& source(std::uint32_t index) const { return sources_[index]; }

  // Every line counts for who is there and when the job ran.
  void saw(const Line& line);
  // Gives back where it is kept, for repeat(); nothing where it is not.
  std::optional<std::size_t> add(Event&& event);
  // The same once more.
  void repeat(std::size_t place, std::uint64_t order) {
    ++events_[place].count;
    events_[place].last_order = order;
  }
  Blocks& blocks() { return blocks_; }
  const Blocks& blocks() const { return blocks_; }

  // To be called once, behind the last line: names the ranks, drops what the kernel said at other
  // times, and sorts.
  void settle();

  const std::vector<Event>& events() const { return events_; }
  const Event* first(Kind kind) const;
  std::vector<const Event*> all(Kind kind) const;
  void add_settled(Event&& event) {
    name_host(event);
    events_.push_back(std::move(event));
  }

  // Negative if `one` happened first, positive if `other` did, 0 if nobody can say.
  int compare(const Event& one, const Event& other) const;
  // Whether a clock that both lines have says so, not the order of a file.
  bool compares_by_clock(const Event& one, const Event& other) const {
    return telling_clock(one, other).has_value();
  }

  std::int64_t world() const { return world_; }
  std::int64_t world_of(const std::string& host) const;  // of the jobs that have processes there
  const std::set<std::string>& ranks() const { return ranks_; }
  const std::set<std::string>& hosts() const { return hosts_; }
  const std::set<std::string>& nccl_hosts() const { return nccl_hosts_; }
  std::size_t nccl_ranks() const { return nccl_pids_.size(); }  // processes of NCCL that say anything
  bool infiniband_only() const {
    return first(Kind::fact_infiniband) != nullptr && first(Kind::fact_roce) == nullptr;
  }
  std::uint64_t job_lines() const { return job_lines_; }

 private:
  std::optional<Clock> telling_clock(const Event& one, const Event& other) const;
  bool in_job(const Event& event, bool& known) const;
  void name_ranks();
  void watch_front(const Line& line);
  void drop_clock_that_stands();
  void note_host_of_rank(const std::string& rank, const std::string& host);
  void name_host(Event& event) const;

  std::vector<std::string> sources_;
  std::vector<Event> events_;
  std::map<std::string, std::size_t> known_;  // what was seen -> its event
  std::unordered_map<std::string, std::pair<std::int64_t, std::string>>
      rank_of_;                                                // "host pid" -> group size, rank
  std::unordered_map<std::string, std::string> host_of_rank_;  // empty where they are several
  std::set<std::string> ranks_, hosts_, nccl_hosts_, nccl_pids_;
  std::unordered_set<std::uint64_t> streams_;  // whose names are in these already
  std::int64_t world_ = 0;
  std::uint64_t job_lines_ = 0;
  std::array<double, clocks> begin_{}, end_{};
  std::array<bool, clocks> has_window_{};
  Stamps inner_begin_, inner_end_;  // of the times that stand behind another of the same clock
  std::optional<Stamp> still_;      // what all lines so far have in front
  bool has_lines_ = false;
  Clock clock_ = Clock::date;  // the one that most failures have
  bool has_clock_ = false;
  Blocks blocks_;
};

}  // namespace beeline::doctor::log
