#include "proto/reliability/read_jobs.h"

#include <algorithm>

#include "base/check.h"

namespace beeline::proto {
namespace {

bool overlap(const ReadJob& a, const ReadJob& b) {
  return before(a.first_psn, b.end_psn()) && before(b.first_psn, a.end_psn());
}

// True when `job` will still send everything that `again` asks for.
bool still_to_come(const ReadJob& job, const ReadJob& again) {
  return job.end_psn() == again.end_psn() && !before(again.first_psn, job.next_psn()) &&
         job.address + job.length == again.address + again.length && job.rkey == again.rkey;
}

}  // namespace

template <class Predicate>
void ReadJobs::erase_if(Predicate predicate) {
  const auto begin = jobs_.begin();
  const auto end = begin + static_cast<std::ptrdiff_t>(count_);
  count_ = static_cast<std::size_t>(std::remove_if(begin, end, predicate) - begin);
}

std::size_t ReadJobs::count_waiting(bool duplicate) const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < count_; ++i) count += jobs_[i].duplicate == duplicate && !jobs_[i].finished();
  return count;
}

void ReadJobs::insert_at(std::size_t index, const ReadJob& job) {
  BEELINE_CHECK(count_ < jobs_.size() && index <= count_);
  const auto at = jobs_.begin() + static_cast<std::ptrdiff_t>(index);
  std::move_backward(at, jobs_.begin() + static_cast<std::ptrdiff_t>(count_),
                     jobs_.begin() + static_cast<std::ptrdiff_t>(count_) + 1);
  *at = job;
  ++count_;
}

bool ReadJobs::has_room(std::size_t limit) {
  drop_finished();
  return count_waiting(false) < std::min<std::size_t>(limit, max_outstanding_reads);
}

void ReadJobs::add_new(const ReadJob& job) { insert_at(count_, job); }

void ReadJobs::add_duplicate(const ReadJob& job, std::size_t limit) {
  drop_finished();
  for (std::size_t i = 0; i < count_; ++i)
    if (still_to_come(jobs_[i], job)) return;
  erase_if([&job](const ReadJob& other) { return overlap(other, job); });
  if (count_waiting(true) >= limit) return;
  std::size_t index = 0;
  while (index < count_ && before(jobs_[index].first_psn, job.first_psn)) ++index;
  insert_at(index, job);
}

ReadJob* ReadJobs::current() {
  for (std::size_t i = 0; i < count_; ++i)
    if (!jobs_[i].finished()) return &jobs_[i];
  return nullptr;
}

bool ReadJobs::pending() const { return count_waiting(false) + count_waiting(true) != 0; }

void ReadJobs::drop_finished() {
  erase_if([](const ReadJob& job) { return job.finished(); });
}

void ReadJobs::take_back(Psn psn) {
  for (std::size_t i = 0; i < count_; ++i) {
    ReadJob& job = jobs_[i];
    if (!before(psn, job.first_psn) && before(psn, job.next_psn())) {
      job.sent = static_cast<std::uint32_t>(distance(psn, job.first_psn));
      return;
    }
  }
}

}  // namespace beeline::proto
