// While one lives, the file hooks leave this thread's calls alone.
#pragma once

namespace beeline::preload::files {

class Bypass {
 public:
  Bypass() { ++depth; }
  ~Bypass() { --depth; }
  Bypass(const Bypass&) = delete;
  Bypass& operator=(const Bypass&) = delete;
  static bool active() { return depth > 0; }

 private:
  // Read in signal handlers and before constructors: no lazy allocation of thread-local storage.
  static inline thread_local int depth __attribute__((tls_model("initial-exec"))) = 0;
};

}  // namespace beeline::preload::files
