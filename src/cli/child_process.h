// A program run as a child that the user hardly notices: it gets the signals that its parent gets, and
// the parent ends as it does.
#pragma once

#include <signal.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace beeline::cli {

// From construction on, signals wait to be passed on, so that none can end this process meanwhile.
class SignalRelay {
 public:
  SignalRelay();

  // Runs the program (looked up as execvp does) to its end. Its exit status, or 128 + the signal that ended
  // it. If this process is killed, the program is too.
  Result<int> run(const std::vector<std::string>& words);

 private:
  void restore() const;

  sigset_t relayed_{}, before_{};
  struct sigaction end_of_child_before_ {};
};

}  // namespace beeline::cli
