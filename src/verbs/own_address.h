// The address behind a GID can be taken from its interface while connections use it. Nothing says so but
// silence, so this looks twice: at the start, and when a peer seems to be gone. Never on the way.
#pragma once

#include <string>

#include "base/address.h"

namespace beeline::verbs {

class OwnAddress {
 public:
  explicit OwnAddress(const Gid& gid);
  // Empty, or what explains the silence. An address that was never seen here (the interface is in another
  // network namespace) explains nothing.
  std::string loss() const;

 private:
  Gid gid_;
  bool was_here_;
};

}  // namespace beeline::verbs
