// The algorithms direct and dissemination: every rank gets every contribution that it needs, and
// combines them itself, in the order in which the ring would have.
#pragma once

#include "coll/builder.h"

namespace beeline::coll {

// The steps of this rank for the operation that the builder's plan has.
void gathering(Builder& build, Algorithm algorithm);

}  // namespace beeline::coll
