// What was posted and not yet accounted for: a work request completes at most once, and in order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "base/check.h"
#include "proto/types.h"

namespace beeline::fuzz {

class WorkLog {
 public:
  std::uint64_t posted(bool signaled, bool is_read = false) {
    outstanding_.push_back({next_id_, signaled, is_read});
    return next_id_++;
  }

  bool has_any() const { return !outstanding_.empty(); }
  bool has_read() const {
    return std::any_of(outstanding_.begin(), outstanding_.end(),
                       [](const Entry& entry) { return entry.is_read; });
  }

  // The last one was refused.
  void take_back() { outstanding_.pop_back(); }

  // Older ones may only be missing when nobody asked to hear of them.
  void completed(const proto::Completion& completion) {
    for (;;) {
      BEELINE_CHECK(!outstanding_.empty());  // never posted, or completed twice
      const Entry entry = outstanding_.front();
      outstanding_.pop_front();
      if (entry.id == completion.wr_id) {
        BEELINE_CHECK(entry.signaled || completion.status != proto::WcStatus::success);
        return;
      }
      BEELINE_CHECK(!entry.signaled);  // overtaken
    }
  }

  // After a flush nothing that would have been reported is left.
  void check_flushed() const {
    for (const Entry& entry : outstanding_) BEELINE_CHECK(!entry.signaled);
  }
  void clear() { outstanding_.clear(); }

 private:
  struct Entry {
    std::uint64_t id;
    bool signaled;
    bool is_read;
  };
  std::deque<Entry> outstanding_;
  std::uint64_t next_id_ = 1;
};

}  // namespace beeline::fuzz
