// Wakes a thread that sleeps in poll(): a descriptor that becomes readable.
#pragma once

#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>

#include "base/descriptor.h"
#include "base/result.h"

namespace beeline::exec {

class Bell {
 public:
  static Result<Bell> create() {
    Bell bell;
    bell.descriptor_ = Descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (bell.descriptor_.get() < 0) return fail_errno(errno, "creating an eventfd");
    return bell;
  }
  int descriptor() const { return descriptor_.get(); }
  void ring() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(descriptor_.get(), &one, sizeof one);  // full means readable
  }
  void drain() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto taken = read(descriptor_.get(), &count, sizeof count);
  }

 private:
  Descriptor descriptor_;
};

}  // namespace beeline::exec
