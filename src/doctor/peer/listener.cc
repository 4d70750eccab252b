#include "doctor/peer/listener.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>

#include "base/random.h"
#include "doctor/peer/echo.h"
#include "doctor/peer/rc_end.h"
#include "doctor/printable.h"

namespace beeline::doctor::peer {
namespace {

constexpr Duration greeting_timeout = 5s, silence_timeout = 60s, session_timeout = 1200s, rc_timeout = 2s;
constexpr int most_pings = 4096;

std::string text_of(const nlohmann::json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_string() ? found->get<std::string>() : std::string();
}

beeline::Result<void> greet(Channel& channel) {
  BEELINE_TRY(const auto hello, channel.receive("hello", greeting_timeout));
  if (text_of(hello, "program") != "beeline doctor")
    return fail(Errc::protocol, "{} does not speak the language of beeline doctor", channel.peer());
  if (const auto version = hello.find("version"); version == hello.end() || *version != 1)
    return fail(Errc::unsupported, "another version of beeline doctor: use the same one on both hosts");
  return {};
}

std::vector<IpAddress> all_addresses(const HostFacts& host) {
  std::vector<IpAddress> all;
  for (const auto& rail : host.rails)
    for (const auto& gid : rail.gids) all.push_back(gid.address);
  return all;
}

// What it takes to answer one "rc": an end of ours, connected to the client's.
beeline::Result<RcEnd> prepare_ping(const nlohmann::json& request, verbs::Provider* provider) {
  if (provider == nullptr) return fail(Errc::unsupported, "no device that this program drives");
  const auto gid = parse_address(text_of(request, "gid"));
  const auto theirs = request.find("end");
  if (!gid || theirs == request.end()) return fail(Errc::protocol, "an RC ping without a GID or an end");
  BEELINE_TRY(auto end, RcEnd::create(*provider, text_of(request, "device"), *gid));
  BEELINE_TRY_VOID(end.connect(*theirs));
  BEELINE_TRY_VOID(end.post_receive());
  return end;
}

beeline::Result<void> answer_ping(Channel& channel, const nlohmann::json& request,
                                  verbs::Provider* provider) {
  auto end = prepare_ping(request, provider);
  if (!end) return channel.send({{"type", "rc_refused"}, {"text", end.error().message}});
  BEELINE_TRY_VOID(channel.send({{"type", "rc_ready"}, {"end", end->info()}}));
  BEELINE_TRY(const auto ask, channel.receive("rc_check", silence_timeout));
  const auto seed = ask.find("seed");
  if (seed == ask.end() || !seed->is_number_unsigned()) return channel.send({{"type", "rc_result"}});
  const auto checked = end->check(seed->get<std::uint64_t>(), rc_timeout);
  return channel.send({{"type", "rc_result"}, {"text", checked ? "" : checked.error().message}});
}

std::string name_of(const sockaddr_storage& storage) {
  char text[INET6_ADDRSTRLEN] = "a stranger";
  if (storage.ss_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr, text, sizeof text);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  if (storage.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
    ::inet_ntop(AF_INET, v6->sin6_addr.s6_addr + 12, text, sizeof text);
  else if (storage.ss_family == AF_INET6)
    ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
  return text;
}

void refuse(Channel channel, const std::string& why) {
  static_cast<void>(channel.send({{"type", "failure"}, {"text", why}}, 100ms));
}

}  // namespace

beeline::Result<void> serve_client(Channel& channel, const Host& host, std::uint16_t udp_port) {
  if (auto greeted = greet(channel); !greeted) {
    static_cast<void>(channel.send({{"type", "failure"}, {"text", greeted.error().message}}, 100ms));
    return greeted;
  }
  auto* const provider = host.open_cards ? host.open_cards() : nullptr;
  const auto facts = host.describe(provider);
  BEELINE_TRY_VOID(channel.send(to_json(facts)));
  BEELINE_TRY(const auto told, channel.receive("host", silence_timeout));
  BEELINE_TRY(const auto client, host_from_json(told));
  const auto secret = secure_random();
  EchoServer echo(facts, udp_port, secret, all_addresses(client));
  nlohmann::json ready = {{"type", "ready"}, {"secret", secret}, {"echo", nlohmann::json::array()}};
  for (const auto& door : echo.doors())
    ready["echo"].push_back({{"address", to_string(door.address)}, {"port", door.port}});
  BEELINE_TRY_VOID(channel.send(ready));
  const auto deadline = monotonic_now() + session_timeout;
  for (int pings = 0; pings < most_pings && monotonic_now() < deadline; ++pings) {
    BEELINE_TRY(const auto message, channel.receive(silence_timeout));
    const auto type = text_of(message, "type");
    if (type == "bye") return {};
    if (type != "rc")
      return fail(Errc::protocol, "{} asks for '{}', which no doctor does", channel.peer(),
                  printable(type, 40));
    BEELINE_TRY_VOID(answer_ping(channel, message, provider));
  }
  return fail(Errc::timed_out, "{} takes too long", channel.peer());
}

beeline::Result<Listener> Listener::open(std::uint16_t port) {
  // One IPv6 socket serves IPv4 too; hosts without IPv6 get an IPv4 one.
  Descriptor socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool v6 = static_cast<bool>(socket);
  if (!v6) socket = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail_errno(errno, "opening a TCP socket");
  const int on = 1, off = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (v6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  const auto any = socket_address(v6 ? IpAddress{} : IpAddress::v4(0, 0, 0, 0), port);
  if (::bind(socket.get(), any.get(), any.length) != 0 || ::listen(socket.get(), 8) != 0)
    return fail_errno(errno, fmt::format("listening on TCP port {} (another: --listen PORT)", port));
  const auto bound = bound_port(socket.get());
  return Listener(std::move(socket), bound);
}

void Listener::run(const Host& host, const Say& say, const std::atomic<bool>& stop) {
  std::thread worker;
  std::atomic<bool> busy = false;
  std::string client;
  while (!stop) {
    if (!wait_for(socket_.get(), POLLIN, monotonic_now() + 500ms)) continue;
    sockaddr_storage from{};
    socklen_t length = sizeof from;
    Descriptor accepted(
        ::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!accepted) continue;
    const int on = 1;
    ::setsockopt(accepted.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Channel channel(std::move(accepted), name_of(from));
    if (busy) {
      say(fmt::format("{}: sent away, {} is being served", channel.peer(), client));
      refuse(std::move(channel), fmt::format("busy with {}; try again when that is done", client));
      continue;
    }
    if (worker.joinable()) worker.join();
    client = channel.peer();
    busy = true;
    worker = std::thread([&host, &say, &busy, port = port_, channel = std::move(channel)]() mutable {
      const auto served = serve_client(channel, host, port);
      say(served ? channel.peer() + ": examined"
                 : fmt::format("{}: {}", channel.peer(), served.error().message));
      busy = false;
    });
  }
  if (worker.joinable()) worker.join();
}

}  // namespace beeline::doctor::peer
