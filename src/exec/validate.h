// Is a call well-formed? Looks at one rank's arguments only.
#pragma once

#include "exec/communicator.h"

namespace beeline::exec {

// One sentence for the caller when it is not.
Result<void> validate(const Call& call, Rank rank, int size);

}  // namespace beeline::exec
