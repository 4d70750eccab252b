#include "perf/channel.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/clock.h"

namespace beeline::perf {
namespace {

constexpr std::size_t header_bytes = 8;  // u32 payload length, u16 type, u16 zero
constexpr Duration send_timeout = 10s;
constexpr Duration alive_interval = 1s;

// A host that vanished without a word is noticed within about 15 s.
void set_tcp_options(int fd) {
  const auto set = [fd](int level, int option, int value) {
    setsockopt(fd, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 15000);
}

// 1 when ready, 0 when the deadline passed, -1 with errno.
int wait_for(int fd, short events, TimePoint deadline) {
  for (;;) {
    const Duration left = deadline - monotonic_now();
    const auto ms = std::clamp<std::int64_t>((left.count() + 999'999) / 1'000'000, 0, 60'000);
    pollfd entry{fd, events, 0};
    const int result = ::poll(&entry, 1, static_cast<int>(ms));
    if (result != 0 && !(result < 0 && errno == EINTR)) return result;
    if (monotonic_now() >= deadline) return 0;
  }
}

bool set_nonblocking(int fd) { return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0; }

std::string name_of(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = "";
  if (getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return "the peer";
  return host;
}

}  // namespace

Channel::Channel(Descriptor socket, std::string peer) : socket_(std::move(socket)), peer_(std::move(peer)) {
  set_nonblocking(socket_.get());
}

Result<void> Channel::send(const Message& message) {
  std::vector<std::byte> bytes(header_bytes + message.payload.size());
  store_be32(bytes.data(), static_cast<std::uint32_t>(message.payload.size()));
  store_be16(bytes.data() + 4, static_cast<std::uint16_t>(message.type));
  std::copy(message.payload.begin(), message.payload.end(), bytes.begin() + header_bytes);
  const TimePoint deadline = monotonic_now() + send_timeout;
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t sent = ::send(socket_.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (sent > 0) {
      at += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      if (wait_for(socket_.get(), POLLOUT, deadline) == 0)
        return fail(Errc::timed_out, "{} does not read its TCP connection", peer_);
    } else if (errno != EINTR) {
      return fail(Errc::peer_lost, "{} is gone: {}", peer_, std::strerror(errno));
    }
  }
  return {};
}

// A whole message from what was received, if there is one.
Result<std::optional<Message>> Channel::take() {
  if (received_.size() < header_bytes) return std::nullopt;
  const std::size_t length = load_be32(received_.data());
  if (length > max_payload_bytes)
    return fail(Errc::protocol, "{} does not speak the protocol of `beeline perf`", peer_);
  if (received_.size() < header_bytes + length) return std::nullopt;
  const auto body = received_.begin() + header_bytes;
  Message message;
  message.type = static_cast<MessageType>(load_be16(received_.data() + 4));
  message.payload.assign(body, body + static_cast<std::ptrdiff_t>(length));
  received_.erase(received_.begin(), body + static_cast<std::ptrdiff_t>(length));
  if (message.type == MessageType::failure)
    return fail(Errc::aborted, "{} gave up: {}", peer_, decode_failure(message));
  return message;
}

// Waits until more bytes are there.
Result<void> Channel::fill(TimePoint deadline) {
  const int ready = wait_for(socket_.get(), POLLIN, deadline);
  if (ready == 0) return fail(Errc::timed_out, "no answer from {} in time", peer_);
  std::byte buffer[4096];
  const ssize_t got = recv(socket_.get(), buffer, sizeof buffer, 0);
  if (got == 0) return fail(Errc::peer_lost, "{} is gone: it closed its connection", peer_);
  if (got < 0) {
    if (errno == EINTR || errno == EAGAIN) return {};
    return fail(Errc::peer_lost, "{} is gone: {}", peer_, std::strerror(errno));
  }
  received_.insert(received_.end(), buffer, buffer + got);
  return {};
}

Result<Message> Channel::receive_any(Duration timeout) {
  TimePoint deadline = monotonic_now() + timeout;
  for (;;) {
    BEELINE_TRY(auto message, take());
    if (!message) {
      BEELINE_TRY_VOID(fill(deadline));
    } else if (message->type == MessageType::alive) {
      deadline = monotonic_now() + timeout;
    } else {
      return std::move(*message);
    }
  }
}

Result<Message> Channel::receive(MessageType expected, Duration timeout) {
  BEELINE_TRY(auto message, receive_any(timeout));
  if (message.type != expected)
    return fail(Errc::protocol, "{} sent message {} where {} was due", peer_, static_cast<int>(message.type),
                static_cast<int>(expected));
  return message;
}

Result<std::optional<Message>> Channel::poll() {
  for (;;) {
    BEELINE_TRY(auto message, take());
    if (message && message->type == MessageType::alive) continue;
    if (message) return message;
    pollfd entry{socket_.get(), POLLIN, 0};
    if (::poll(&entry, 1, 0) <= 0) return std::nullopt;
    BEELINE_TRY_VOID(fill(monotonic_now()));
  }
}

Result<void> Channel::keep_alive() {
  const TimePoint now = monotonic_now();
  if (now - last_alive_ < alive_interval) return {};
  last_alive_ = now;
  return send(empty_message(MessageType::alive));
}

void Channel::send_failure(const Error& error) {
  // The peer's own sentence needs no echo, and a peer that is gone hears nothing.
  if (error.code != Errc::aborted && error.code != Errc::peer_lost)
    static_cast<void>(send(encode_failure(error.message)));
}

Result<Listener> Listener::open(std::uint16_t port) {
  // One IPv6 socket serves IPv4 too; hosts without IPv6 get an IPv4 one.
  Descriptor socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool v6 = socket.get() >= 0;
  if (!v6) socket = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return fail_errno(errno, "opening a TCP socket");
  const int on = 1, off = 0;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (v6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(port);
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = htons(port);
  const auto* address =
      v6 ? reinterpret_cast<const sockaddr*>(&any6) : reinterpret_cast<const sockaddr*>(&any4);
  const socklen_t length = v6 ? sizeof any6 : sizeof any4;
  if (bind(socket.get(), address, length) != 0 || listen(socket.get(), 64) != 0)
    return fail_errno(errno, fmt::format("listening on TCP port {} (another port: -p)", port));
  sockaddr_in6 bound{};
  socklen_t bound_length = sizeof bound;
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &bound_length);
  return Listener(std::move(socket), ntohs(bound.sin6_port));  // at the same place in both families
}

Result<Channel> Listener::accept() {
  sockaddr_storage from{};
  for (;;) {
    socklen_t length = sizeof from;
    const int fd = accept4(socket_.get(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC);
    if (fd >= 0) {
      set_tcp_options(fd);
      return Channel(Descriptor(fd), name_of(reinterpret_cast<sockaddr*>(&from), length));
    }
    if (errno != EINTR && errno != ECONNABORTED) return fail_errno(errno, "accepting a connection");
  }
}

namespace {

// 0, or why this one address does not answer.
int connect_one(int fd, const addrinfo& address, TimePoint deadline) {
  if (!set_nonblocking(fd)) return errno;
  if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (wait_for(fd, POLLOUT, deadline) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

}  // namespace

Result<Channel> connect_to(const std::string& host, std::uint16_t port, Duration timeout) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list); error != 0)
    return fail(Errc::not_found, "host {}: {}", host, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  const TimePoint deadline = monotonic_now() + timeout;
  int error = ETIMEDOUT;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    Descriptor socket(::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol));
    error = socket.get() < 0 ? errno : connect_one(socket.get(), *one, deadline);
    if (error != 0) continue;
    set_tcp_options(socket.get());
    return Channel(std::move(socket), host);
  }
  if (error == ECONNREFUSED)
    return fail(
        Errc::not_found,
        "nobody listens on {} port {}: start the server there first (the same command without a host)", host,
        port);
  return fail_errno(error, fmt::format("connecting to {} port {}", host, port));
}

}  // namespace beeline::perf
