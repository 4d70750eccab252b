// Connects a group: all ranks together, or none.
#pragma once

#include "exec/connections/connections.h"
#include "exec/connections/hello.h"
#include "exec/control.h"

namespace beeline::exec {

// Creates the queue pairs, exchanges addresses, connects, and sends a probe each way on
// every path, so that a path that does not work is found here and named with both GIDs. When
// any rank fails, every rank returns that rank's error.
Result<std::unique_ptr<Connections>> establish(verbs::Provider& provider, ibv_context* context,
                                               const verbs::GidChoice& gid, Rank rank, const Terms& terms,
                                               Control& control, Duration timeout);

}  // namespace beeline::exec
