#include "port/udp/service.h"

#include <fmt/format.h>

#include <cerrno>

#include "base/abstract_name.h"

namespace beeline::port {
namespace {

AbstractName name_of(std::uint64_t service_id) {
  return AbstractName(fmt::format("beeline.4791.service.{:016x}", service_id));
}

Descriptor make_socket() {
  return Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

Result<ServiceReservation> ServiceReservation::reserve(std::uint64_t service_id) {
  Descriptor socket = make_socket();
  if (!socket) return fail_errno(errno, "cannot make a Unix socket for a service");
  const AbstractName name = name_of(service_id);
  if (::bind(socket.get(), name.get(), name.length) == 0) return ServiceReservation(std::move(socket));
  if (errno == EADDRINUSE)
    return fail(Errc::in_use, "service {:#018x} (port {}) has a listener on this host already", service_id,
                service_id & 0xFFFF);
  return fail_errno(errno, "cannot bind the Unix socket of a service");
}

Result<void> ServiceReservation::serve() {
  if (::listen(socket_.get(), 0) != 0) return fail_errno(errno, "cannot listen on the socket of a service");
  return {};
}

// Nobody ever accepts: when the queue is full, the kernel says EAGAIN, and that is as good an answer.
bool service_is_served(std::uint64_t service_id) {
  const Descriptor socket = make_socket();
  const AbstractName name = name_of(service_id);
  return socket && (::connect(socket.get(), name.get(), name.length) == 0 || errno == EAGAIN);
}

}  // namespace beeline::port
