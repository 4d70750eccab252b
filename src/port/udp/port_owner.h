// Who holds the RoCE port when we cannot have it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/address.h"

namespace beeline::port {

// Looks through the text of /proc/net/udp (or udp6, `v6`) for a socket on port 4791
// that stands in the way of `address`: bound to it or to the wildcard.
std::optional<uid_t> find_port_owner(std::string_view table, bool v6, const IpAddress& address);

// One sentence: what is in use, by whom, what to do.
std::string describe_port_conflict(const IpAddress& address);

}  // namespace beeline::port
