// Services of the connection manager: who listens for a service id on this host.
//
// As a slot, a service is an abstract Unix socket name, "@beeline.4791.service.<16 hex digits>": scoped to
// the network namespace, taken atomically, and free again when its process dies. Whoever binds it has
// reserved the service; once it listens, connecting to the name tells others that there is somebody.
#pragma once

#include <cstdint>

#include "base/descriptor.h"
#include "base/result.h"

namespace beeline::port {

class ServiceReservation {
 public:
  // in_use when another process, or this one, has it.
  static Result<ServiceReservation> reserve(std::uint64_t service_id);

  // From now on service_is_served() says yes.
  Result<void> serve();

 private:
  explicit ServiceReservation(Descriptor socket) : socket_(std::move(socket)) {}
  Descriptor socket_;
};

bool service_is_served(std::uint64_t service_id);

}  // namespace beeline::port
