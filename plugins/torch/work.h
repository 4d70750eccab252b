// The c10d handle of one request.
#pragma once

#include <beeline/beeline.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "request.h"

namespace beeline::pytorch {

class Completer;

// Complete once every call of the request is done and its results lie in the caller's
// tensors; the future completes right after. Whoever gets there first brings that about:
// a thread in wait(), the completer, or start() itself.
class WorkBeeline : public c10d::Work {
 public:
  // For messages: `first_call`, the number that the library gives to the first of the request's calls, and
  // `place`, "rank 0 of group 'default_pg'".
  WorkBeeline(Request request, int rank, std::uint64_t sequence, std::uint64_t first_call,
              const std::string& place, Completer& completer);
  ~WorkBeeline() override;
  WorkBeeline(const WorkBeeline&) = delete;
  WorkBeeline& operator=(const WorkBeeline&) = delete;

  // Hands the calls to the library, once; how many it took. What it refuses becomes this work's exception.
  static std::size_t start(const c10::intrusive_ptr<WorkBeeline>& self, beeline_comm* comm);
  // Only when every call is done.
  void complete();

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override;
  std::chrono::milliseconds getTimeout() const override;

 private:
  static void on_done(void* user, beeline_status status, const char* message);

  void note_failure(beeline_status status, const char* message);
  void wait_for_calls(std::chrono::milliseconds timeout);
  bool claim();
  std::exception_ptr outcome();
  std::string describe() const;
  // One call less to wait for: was it the last?
  bool is_last_to_finish();
  // The same; the last one hands the work to the completer, unless this thread waits for it.
  static void finished_one(c10::intrusive_ptr<WorkBeeline> self);

  const Request request_;
  const std::uint64_t sequence_, first_call_;
  const std::string place_;
  Completer& completer_;  // outlives every call that is under way
  std::vector<beeline_work*> handles_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::size_t unfinished_ = 0;  // calls; guarded by mutex_, as is what follows
  bool claimed_ = false;
  beeline_status failure_ = BEELINE_OK;
  std::string failure_message_;
};

}  // namespace beeline::pytorch
