// What the executor needs of the connections between the ranks that exist beside
// the verbs: exchange at set-up, naming and abort later. The composition root
// implements it over bootstrap/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"

namespace beeline::exec {

// A rank gave up, or its process or connection is gone.
struct Failure {
  Rank rank{-1};  // who is to blame, or who told us
  Error error;    // complete: names ranks and calls
};

class Control {
 public:
  virtual ~Control() = default;
  // Every rank contributes bytes, every rank gets all of them, indexed by rank. Blocks.
  virtual Result<std::vector<std::vector<std::byte>>> all_gather(Bytes mine, Duration timeout) = 0;
  // Tells every other rank that this group has failed, and why. Never blocks; repeated calls do nothing.
  virtual void broadcast_failure(const Error& error) = 0;
  // The first failure that a peer reported, or a peer that is gone. Never blocks.
  virtual std::optional<Failure> poll_failure() = 0;
  // Polls readable when poll_failure may give something.
  virtual int wait_descriptor() const = 0;
  // "rank 3 (pid 4711 on node-a)"
  virtual std::string describe(Rank rank) const = 0;
};

}  // namespace beeline::exec
