#include "base/random.h"

#include <sys/random.h>

#include "base/check.h"

namespace beeline {

std::uint64_t secure_random() {
  std::uint64_t value = 0;
  // A request this small is never interrupted once the pool is initialised (getrandom(2)).
  BEELINE_CHECK(::getrandom(&value, sizeof value, 0) == sizeof value);
  return value;
}

}  // namespace beeline
