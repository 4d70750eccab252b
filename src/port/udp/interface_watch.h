// Hears from the kernel when links or addresses of this network namespace change (rtnetlink(7)). What it is
// that changed nobody reads here: whoever hears of a change looks at all interfaces, so that nothing is
// missed when the kernel had more to say than the socket holds.
#pragma once

#include "base/descriptor.h"

namespace beeline::port {

class InterfaceWatch {
 public:
  // Where the kernel gives no such socket (a sandbox), nothing is ever heard.
  InterfaceWatch();

  int descriptor() const { return socket_.get(); }  // -1: there is none
  // Whether there were changes since the last call; never blocks.
  bool take_change();
  void close() { socket_.reset(); }

 private:
  Descriptor socket_;
};

}  // namespace beeline::port
