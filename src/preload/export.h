// What a function needs to be seen by the programs that this library is preloaded into.
#pragma once

#define BEELINE_EXPORT __attribute__((visibility("default")))
