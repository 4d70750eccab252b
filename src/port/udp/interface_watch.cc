#include "port/udp/interface_watch.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "base/log.h"

namespace beeline::port {

InterfaceWatch::InterfaceWatch()
    : socket_(::socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE)) {
  sockaddr_nl groups{};
  groups.nl_family = AF_NETLINK;
  groups.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (socket_ && ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&groups), sizeof groups) == 0)
    return;
  logger()->debug("changes of interfaces will not be noticed: no rtnetlink socket ({})", errno);
  socket_.reset();
}

// Only the kernel sends to these groups. Messages are cut to the buffer: nobody reads them.
bool InterfaceWatch::take_change() {
  if (!socket_) return false;
  constexpr int messages_max = 4096;  // a host that never stops changing is looked at in between
  bool changed = false;
  std::array<std::byte, 16> ignored;
  for (int i = 0; i < messages_max; ++i) {
    const ssize_t bytes = ::recv(socket_.get(), ignored.data(), ignored.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (bytes < 0 && errno != ENOBUFS) break;  // ENOBUFS: the kernel had more to say than there was room for
    changed = true;
  }
  return changed;
}

}  // namespace beeline::port
