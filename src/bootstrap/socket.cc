#include "bootstrap/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/clock.h"

namespace beeline::bootstrap {
namespace {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

SocketAddress to_socket_address(const Endpoint& endpoint) {
  SocketAddress out;
  if (endpoint.address.is_v4()) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(endpoint.port);
    std::memcpy(&v4.sin_addr, endpoint.address.bytes.data() + 12, 4);
    std::memcpy(&out.storage, &v4, sizeof v4);
    out.bytes = sizeof v4;
  } else {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(endpoint.port);
    std::memcpy(&v6.sin6_addr, endpoint.address.bytes.data(), 16);
    std::memcpy(&out.storage, &v6, sizeof v6);
    out.bytes = sizeof v6;
  }
  return out;
}

Endpoint from_socket_address(const sockaddr* address) {
  Endpoint out;
  if (address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    std::array<std::uint8_t, 4> raw{};
    std::memcpy(raw.data(), &v4.sin_addr, 4);
    out = {IpAddress::v4(raw[0], raw[1], raw[2], raw[3]), ntohs(v4.sin_port)};
  } else if (address->sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof v6);
    std::memcpy(out.address.bytes.data(), &v6.sin6_addr, 16);
    out.port = ntohs(v6.sin6_port);
  }
  return out;
}

int family_of(const Endpoint& endpoint) { return endpoint.address.is_v4() ? AF_INET : AF_INET6; }

Result<Descriptor> open_socket(const Endpoint& endpoint) {
  Descriptor fd(::socket(family_of(endpoint), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "cannot open a TCP socket");
  return fd;
}

void set_int(int fd, int level, int option, int value) {
  // Every option set here improves behaviour; none decides correctness.
  (void)::setsockopt(fd, level, option, &value, sizeof value);
}

using Query = int (*)(int, sockaddr*, socklen_t*);
Result<Endpoint> endpoint_of(int fd, Query query, const char* what) {
  SocketAddress address;
  address.bytes = sizeof address.storage;
  if (query(fd, address.get(), &address.bytes) != 0) return fail_errno(errno, what);
  return from_socket_address(address.get());
}

}  // namespace

Deadline::Deadline(Duration from_now)
    // A century stands for ever and keeps the sum from overflowing.
    : at_(monotonic_now() + std::min<Duration>(from_now, 24h * 36500)) {}

Duration Deadline::left() const { return at_ - monotonic_now(); }

int Deadline::poll_ms(Duration cap) const {
  const auto wait = std::clamp<Duration>(left(), Duration::zero(), cap);
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count());
}

Deadline Deadline::sooner(Duration from_now) const {
  Deadline other(from_now);
  return other.at_ < at_ ? other : *this;
}

std::string to_string(const Endpoint& endpoint) {
  const auto address = beeline::to_string(endpoint.address);
  return endpoint.address.is_v4() ? fmt::format("{}:{}", address, endpoint.port)
                                  : fmt::format("[{}]:{}", address, endpoint.port);
}

Result<HostPort> parse_host_port(std::string_view text) {
  const auto bad = [&] {
    return fail(Errc::invalid_argument, "'{}' is no meeting point: give host:port, such as node-a:29500",
                text);
  };
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad();
  std::string_view host = text.substr(0, colon), digits = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return bad();  // an IPv6 address needs brackets: without them the port is a guess
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (host.empty() || error != std::errc{} || end != digits.data() + digits.size() || port == 0) return bad();
  return HostPort{std::string(host), port};
}

Result<std::vector<IpAddress>> resolve(const std::string& host) {
  if (const auto literal = parse_address(host)) return std::vector{*literal};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int status = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (status != 0)
    return fail(Errc::not_found, "cannot resolve the host name '{}': {}", host, ::gai_strerror(status));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<IpAddress> out;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    const auto address = from_socket_address(entry->ai_addr).address;
    if (std::find(out.begin(), out.end(), address) == out.end()) out.push_back(address);
  }
  return out;
}

Result<Descriptor> listen_on(const Endpoint& endpoint) {
  BEELINE_TRY(Descriptor fd, open_socket(endpoint));
  // Without it the port of a group that has just ended would be blocked for a minute.
  set_int(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  auto address = to_socket_address(endpoint);
  if (::bind(fd.get(), address.get(), address.bytes) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    const int cause = errno;
    if (cause == EADDRINUSE)
      return fail(Errc::in_use, "cannot listen on {}: another process does; choose another port",
                  to_string(endpoint));
    if (cause == EADDRNOTAVAIL)
      return fail(Errc::not_found, "cannot listen on {}: this host does not have that address",
                  to_string(endpoint));
    return fail_errno(cause, fmt::format("cannot listen on {}", to_string(endpoint)));
  }
  return fd;
}

Descriptor accept_one(int listener) {
  return Descriptor(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

Result<Descriptor> connect_to(const Endpoint& endpoint, const Deadline& deadline) {
  BEELINE_TRY(Descriptor fd, open_socket(endpoint));
  auto address = to_socket_address(endpoint);
  const auto what = [&] { return fmt::format("cannot connect to {}", to_string(endpoint)); };
  if (::connect(fd.get(), address.get(), address.bytes) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return fail_errno(errno, what());
    BEELINE_TRY(const bool ready, wait_for(fd.get(), POLLOUT, deadline));
    if (!ready) return fail(Errc::timed_out, "{}: no answer", what());
    int status = 0;
    socklen_t bytes = sizeof status;
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &status, &bytes) != 0) return fail_errno(errno, what());
    if (status != 0) return fail_errno(status, what());
  }
  // A port of the ephemeral range can connect to itself while nobody listens there.
  BEELINE_TRY(const Endpoint mine, local_endpoint(fd.get()));
  if (mine == endpoint) return fail(Errc::io, "{}: nobody listens there", what());
  set_int(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  return fd;
}

Result<Endpoint> local_endpoint(int fd) {
  return endpoint_of(
      fd, [](int s, sockaddr* a, socklen_t* n) { return ::getsockname(s, a, n); },
      "cannot read a socket's own address");
}

Result<Endpoint> peer_endpoint(int fd) {
  return endpoint_of(
      fd, [](int s, sockaddr* a, socklen_t* n) { return ::getpeername(s, a, n); },
      "cannot read a connection's far address");
}

Result<bool> wait_for(int fd, short events, const Deadline& deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, deadline.poll_ms());
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return fail_errno(errno, "cannot wait for a connection");
    if (deadline.passed()) return false;
  }
}

void watch_for_death(int fd) {
  set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  tolerate_closed_window(fd, false);
}

void tolerate_closed_window(int fd, bool tolerate) {
  set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, tolerate ? 0 : 4000);
}

}  // namespace beeline::bootstrap
