// The C face of results: status codes, the calling thread's last error, and the wall that
// keeps exceptions inside.
#pragma once

#include <exception>
#include <new>

#include "base/result.h"
#include "beeline/beeline.h"

namespace beeline::api {

beeline_status to_status(Errc code) noexcept;

// Keeps the error for beeline_last_error and gives its status.
beeline_status report(const Error& error) noexcept;

// Runs `body`, which returns Result<void>, and turns whatever happens into a status.
template <class Body>
beeline_status guarded(Body body) noexcept {
  try {
    if (const Result<void> outcome = body(); !outcome) return report(outcome.error());
    return BEELINE_OK;
  } catch (const std::bad_alloc&) {
    return report(Error{Errc::resource_exhausted, "out of memory"});
  } catch (const std::exception& fault) {
    return report(Error{Errc::internal, fault.what()});
  } catch (...) {
    return report(Error{Errc::internal, "an unknown exception"});
  }
}

}  // namespace beeline::api
