// What callers pass, checked: each fault is one sentence that names the argument.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/time.h"
#include "beeline/beeline.h"
#include "exec/communicator.h"

namespace beeline::api {

Result<exec::DType> checked_dtype(beeline_dtype dtype);
Result<exec::RedOp> checked_redop(beeline_redop op);

// A time in seconds as the caller gave it; 0 means `otherwise`.
Result<Duration> checked_seconds(const char* what, double seconds, Duration otherwise);

// Fails unless the buffers are there, their sizes fit into memory, and they do not overlap
// otherwise than beeline.h allows. `call` has everything but is not yet trusted.
Result<void> check_call(const exec::Call& call, Rank rank, int size);

}  // namespace beeline::api
