// READ and atomic requests that the responder still has to answer: a short list in PSN order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "proto/types.h"

namespace beeline::proto {

struct ReadJob {
  Psn first_psn;
  std::uint32_t packets = 0;
  std::uint32_t sent = 0;  // response packets so far
  std::uint64_t address = 0;
  Key rkey{};
  std::uint32_t length = 0;
  std::uint32_t msn = 0;  // as it was when the READ was executed
  bool atomic = false;    // executed already: the answer is `before`, in one packet
  std::uint64_t before = 0;
  bool duplicate = false;  // asked for again: the answer repeats one that was lost, or was not

  Psn end_psn() const { return first_psn + packets; }
  Psn next_psn() const { return first_psn + sent; }
  bool finished() const { return sent == packets; }
};

class ReadJobs {
 public:
  // Whether fewer than `limit` requests in sequence are unanswered.
  bool has_room(std::size_t limit);
  // A request in sequence, for which there is room.
  void add_new(const ReadJob& job);
  // A repeated one; dropped when its answer is still to come, or when `limit` repeated
  // ones wait already.
  void add_duplicate(const ReadJob& job, std::size_t limit);

  // The job to answer next, or nullptr.
  ReadJob* current();
  // Forgets answered jobs. They are kept until then because the socket may refuse packets.
  void drop_finished();
  // The response with this PSN was not sent after all.
  void take_back(Psn psn);
  bool pending() const;
  void clear() { count_ = 0; }

 private:
  template <class Predicate>
  void erase_if(Predicate predicate);
  std::size_t count_waiting(bool duplicate) const;
  void insert_at(std::size_t index, const ReadJob& job);

  std::array<ReadJob, std::size_t{2} * max_outstanding_reads> jobs_{};
  std::size_t count_ = 0;
};

}  // namespace beeline::proto
