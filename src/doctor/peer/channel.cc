#include "doctor/peer/channel.h"

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

#include "base/bytes.h"
#include "doctor/printable.h"

namespace beeline::doctor::peer {
namespace {

bool set_nonblocking(int fd) { return ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) == 0; }

std::string type_of(const nlohmann::json& message) {
  const auto found = message.find("type");
  return found != message.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// 0, or why this one address does not answer.
int connect_one(int fd, const addrinfo& address, TimePoint deadline) {
  if (!set_nonblocking(fd)) return errno;
  if (::connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_for(fd, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

}  // namespace

bool wait_for(int fd, short events, TimePoint deadline) {
  for (;;) {
    const auto left_ms = ((deadline - monotonic_now()).count() + 999'999) / 1'000'000;
    pollfd entry{fd, events, 0};
    const int result = ::poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(left_ms, 0, 60'000)));
    if (result > 0) return true;
    if (monotonic_now() >= deadline) return false;
  }
}

Channel::Channel(Descriptor socket, std::string peer) : in_(std::move(socket)), peer_(std::move(peer)) {
  set_nonblocking(in_.get());
}

Channel::Channel(Descriptor in, Descriptor out, std::string peer)
    : in_(std::move(in)), out_(std::move(out)), peer_(std::move(peer)) {
  set_nonblocking(in_.get());
  set_nonblocking(out_.get());
}

beeline::Result<void> Channel::send(const nlohmann::json& message, Duration timeout) {
  const std::string text = message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > max_message_bytes)
    return fail(Errc::resource_exhausted, "{} bytes to tell {}: more than a message holds", text.size(),
                peer_);
  std::string bytes(4, '\0');
  store_be32(reinterpret_cast<std::byte*>(bytes.data()), static_cast<std::uint32_t>(text.size()));
  bytes += text;
  const int fd = out_ ? out_.get() : in_.get();
  const auto deadline = monotonic_now() + timeout;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto left = bytes.size() - at;
    const auto sent =
        out_ ? ::write(fd, bytes.data() + at, left) : ::send(fd, bytes.data() + at, left, MSG_NOSIGNAL);
    if (sent > 0) {
      at += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      if (!wait_for(fd, POLLOUT, deadline)) return fail(Errc::timed_out, "{} does not listen to us", peer_);
    } else if (errno != EINTR) {
      return fail(Errc::peer_lost, "{} is gone: {}", peer_, std::strerror(errno));
    }
  }
  return {};
}

beeline::Result<std::string> Channel::read_exactly(std::size_t bytes, TimePoint deadline) {
  std::string text(bytes, '\0');
  for (std::size_t at = 0; at < bytes;) {
    const auto got = ::read(in_.get(), text.data() + at, bytes - at);
    if (got > 0) {
      at += static_cast<std::size_t>(got);
    } else if (got == 0) {
      return fail(Errc::peer_lost, "{} closed the connection", peer_);
    } else if (errno == EAGAIN) {
      if (!wait_for(in_.get(), POLLIN, deadline))
        return fail(Errc::timed_out, "{} said nothing in time", peer_);
    } else if (errno != EINTR) {
      return fail(Errc::peer_lost, "{} is gone: {}", peer_, std::strerror(errno));
    }
    if (at < bytes && monotonic_now() >= deadline)
      return fail(Errc::timed_out, "{} speaks too slowly", peer_);
  }
  return text;
}

beeline::Result<nlohmann::json> Channel::read_message(TimePoint deadline) {
  BEELINE_TRY(const auto head, read_exactly(4, deadline));
  const std::size_t length = load_be32(reinterpret_cast<const std::byte*>(head.data()));
  if (length > max_message_bytes)
    return fail(Errc::protocol, "{} does not speak the language of beeline doctor", peer_);
  BEELINE_TRY(const auto text, read_exactly(length, deadline));
  auto message = nlohmann::json::parse(text, nullptr, false);
  if (!message.is_object() || type_of(message).empty())
    return fail(Errc::protocol, "{} does not speak the language of beeline doctor", peer_);
  return message;
}

beeline::Result<nlohmann::json> Channel::receive(Duration timeout) {
  for (;;) {
    BEELINE_TRY(auto message, read_message(monotonic_now() + timeout));
    if (type_of(message) == "failure") {
      const auto text = message.find("text");
      return fail(Errc::aborted, "{} gave up: {}", peer_,
                  text != message.end() && text->is_string() ? printable(text->get<std::string>())
                                                             : "it did not say why");
    }
    if (type_of(message) != "alive") return message;
  }
}

beeline::Result<nlohmann::json> Channel::receive(std::string_view type, Duration timeout) {
  BEELINE_TRY(auto message, receive(timeout));
  if (type_of(message) != type)
    return fail(Errc::protocol, "{} said '{}' where '{}' was due", peer_, printable(type_of(message), 40),
                type);
  return message;
}

beeline::Result<Channel> connect_to(const std::string& host, std::uint16_t port, Duration timeout) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list); error != 0)
    return fail(Errc::not_found, "host {}: {}", host, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  const auto deadline = monotonic_now() + timeout;
  int error = ETIMEDOUT;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    Descriptor socket(::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol));
    error = socket ? connect_one(socket.get(), *one, deadline) : errno;
    if (error != 0) continue;
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return Channel(std::move(socket), host);
  }
  if (error == ECONNREFUSED) return fail(Errc::io, "nobody listens on {} port {}", host, port);
  return fail_errno(error, fmt::format("connecting to {} port {}", host, port));
}

}  // namespace beeline::doctor::peer
