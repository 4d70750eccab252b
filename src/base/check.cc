#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace beeline {
void check_failed(const char* expression, const char* file, int line) noexcept {
  std::fprintf(stderr, "beeline: internal error: %s does not hold (%s:%d)\n", expression, file, line);
  std::abort();
}
}  // namespace beeline
