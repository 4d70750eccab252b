// Work objects of beeline.h.
#include "api/arguments.h"
#include "api/handles.h"
#include "api/process.h"
#include "api/status.h"

namespace beeline::api {

Result<void> check_work(const beeline_work* work) {
  if (work == nullptr) return fail(Errc::invalid_argument, "the work is NULL");
  if (work->generation != generation())
    return fail(Errc::invalid_argument, "this work belongs to the process that forked this one");
  return {};
}

}  // namespace beeline::api

using beeline::Duration;
using beeline::Result;
using beeline::api::check_work;
using beeline::api::guarded;

beeline_status beeline_work_test(beeline_work* work, int* done) {
  return guarded([&]() -> Result<void> {
    BEELINE_TRY_VOID(check_work(work));
    if (done == nullptr)
      return beeline::fail(beeline::Errc::invalid_argument, "the place for the answer is NULL");
    *done = work->work->done() ? 1 : 0;
    if (*done == 0) return {};
    return work->work->wait(Duration::zero());
  });
}

beeline_status beeline_work_wait(beeline_work* work, double timeout_seconds) {
  return guarded([&]() -> Result<void> {
    BEELINE_TRY_VOID(check_work(work));
    const double seconds = timeout_seconds <= 0 ? 0 : timeout_seconds;
    BEELINE_TRY(const Duration timeout,
                beeline::api::checked_seconds("timeout_seconds", seconds, beeline::api::for_ever));
    return work->work->wait(timeout);
  });
}

beeline_status beeline_work_on_done(beeline_work* work, beeline_done_fn done, void* user) {
  return guarded([&]() -> Result<void> {
    BEELINE_TRY_VOID(check_work(work));
    if (done == nullptr)
      return beeline::fail(beeline::Errc::invalid_argument, "the function to call is NULL");
    if (work->has_callback.exchange(true))
      return beeline::fail(beeline::Errc::invalid_argument, "this work has a function to call already");
    work->work->on_done([done, user](const Result<void>& outcome) {
      if (outcome)
        done(user, BEELINE_OK, "");
      else
        done(user, beeline::api::to_status(outcome.error().code), outcome.error().message.c_str());
    });
    return {};
  });
}

void beeline_work_free(beeline_work* work) {
  if (work == nullptr) return;
  if (work->generation == beeline::api::generation()) delete work;
  // In the child of a fork the work's threads are gone: freeing it could wait for them.
}
