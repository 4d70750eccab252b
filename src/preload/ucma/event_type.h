// Kinds of events as the commands number them. librdmacm's enum rdma_cm_event_type has the same values, but
// its header and that of the commands cannot be included together.
#pragma once

#include <cstdint>

namespace beeline::preload::ucma {

enum class EventType : std::uint32_t {
  address_resolved = 0,
  address_error = 1,
  route_resolved = 2,
  connect_request = 4,
  connect_response = 5,
  unreachable = 7,
  rejected = 8,
  established = 9,
  disconnected = 10,
  timewait_exit = 15,
};

}  // namespace beeline::preload::ucma
