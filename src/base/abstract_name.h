// A name in the abstract namespace of Unix sockets: scoped to the network namespace, and freed by the kernel
// with the last descriptor that has it.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <string_view>

namespace beeline {

struct AbstractName {
  sockaddr_un address{};
  socklen_t length = 0;

  // Without the "@" that others write in front. Of a name that is too long, what fits.
  explicit AbstractName(std::string_view name) {
    // The first byte of the path is zero, and the length counts.
    address.sun_family = AF_UNIX;
    const std::size_t copied = name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + copied);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

}  // namespace beeline
