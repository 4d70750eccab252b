// libibverbs and its drivers print warnings while they look for devices. What they say goes
// to our log instead of the user's terminal.
#pragma once

#include <cstdio>
#include <string>

namespace beeline::verbs::system {

// While it lives, what code of this process prints to the stream `stderr` is collected. Only
// the stream is replaced, not the descriptor: programs started meanwhile keep theirs. Not for
// two threads at once.
class Quiet {
 public:
  Quiet();
  ~Quiet();  // lines of libibverbs go to the log, others to where they were meant for
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  std::FILE* real_;
  std::FILE* collecting_;
  char* text_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace beeline::verbs::system
