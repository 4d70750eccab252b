#include "control.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>

namespace beeline::interop {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t longest_line = 1u << 20;

struct AddressDeleter {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, AddressDeleter>;

Result<Addresses> resolve(const std::string& address, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.empty() ? nullptr : address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return fail(Errc::not_found, "{}: {}", address, gai_strerror(error));
  return Addresses(found);
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left);
}

bool ready(int fd, short events, int patience_ms) {
  pollfd entry{fd, events, 0};
  return poll(&entry, 1, patience_ms) > 0;
}

}  // namespace

Result<Control> Control::accept(const std::string& address, std::uint16_t port, Duration patience) {
  BEELINE_TRY(const Addresses list, resolve(address, port, AI_PASSIVE));
  const Descriptor listener(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (::bind(listener.get(), list->ai_addr, list->ai_addrlen) != 0 || ::listen(listener.get(), 1) != 0)
    return fail_errno(errno, fmt::format("listening on TCP port {}", port));
  const auto deadline = Clock::now() + patience;
  if (!ready(listener.get(), POLLIN, milliseconds_until(deadline)))
    return fail(Errc::timed_out, "nobody connected to TCP port {} in time", port);
  Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) return fail_errno(errno, "accept");
  return Control(std::move(socket));
}

Result<Control> Control::connect(const std::string& address, std::uint16_t port, Duration patience) {
  BEELINE_TRY(const Addresses list, resolve(address, port, 0));
  const auto deadline = Clock::now() + patience;
  for (;;) {
    Descriptor socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), list->ai_addr, list->ai_addrlen) == 0) return Control(std::move(socket));
    const int error = errno;
    // The other end may still be starting.
    if (Clock::now() >= deadline) return fail_errno(error, fmt::format("connecting to {}:{}", address, port));
    std::this_thread::sleep_for(100ms);
  }
}

Result<void> Control::send(const Json& value) {
  const std::string line = value.dump() + "\n";
  for (std::size_t sent = 0; sent < line.size();) {
    if (!ready(socket_.get(), POLLOUT, 30'000)) return fail(Errc::timed_out, "the other end does not read");
    const auto count = ::send(socket_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (count < 0) return fail_errno(errno, "telling the other end");
    sent += static_cast<std::size_t>(count);
  }
  return {};
}

Result<Json> Control::receive(Duration patience) {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    if (const auto end = received_.find('\n'); end != std::string::npos) {
      Json value = Json::parse(received_.substr(0, end), nullptr, false);
      received_.erase(0, end + 1);
      if (value.is_discarded()) return fail(Errc::protocol, "the other end sent a line that is no JSON");
      if (value.is_object() && value.contains("failure"))
        return fail(Errc::aborted, "the other end: {}", value["failure"].dump());
      return value;
    }
    if (received_.size() > longest_line) return fail(Errc::protocol, "the other end sent an endless line");
    if (!ready(socket_.get(), POLLIN, milliseconds_until(deadline)))
      return fail(Errc::timed_out, "the other end said nothing for {} s",
                  std::chrono::duration_cast<std::chrono::seconds>(patience).count());
    char buffer[4096];
    const auto count = ::recv(socket_.get(), buffer, sizeof(buffer), 0);
    if (count == 0) return fail(Errc::peer_lost, "the other end went away");
    if (count < 0) return fail_errno(errno, "hearing the other end");
    received_.append(buffer, static_cast<std::size_t>(count));
  }
}

Result<Json> Control::exchange(const Json& mine, Duration patience) {
  BEELINE_TRY_VOID(send(mine));
  return receive(patience);
}

}  // namespace beeline::interop
