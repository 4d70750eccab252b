#include "doctor/peer/echo.h"

#include <net/if.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

namespace beeline::doctor::peer {
namespace {

constexpr std::uint64_t most_bytes = 256u << 20u;
constexpr std::size_t most_sockets = 256;
constexpr int burst = 64;  // answers to one socket before the others get their turn

}  // namespace

EchoServer::EchoServer(const HostFacts& host, std::uint16_t wanted_port, std::uint64_t secret,
                       std::vector<IpAddress> clients)
    : secret_(secret),
      clients_(std::move(clients)),
      room_(most_datagram_bytes),
      reply_(most_datagram_bytes),
      bytes_left_(most_bytes),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const bool loopback = host.only_loopback();
  for (const auto& rail : host.rails)
    for (const auto& address : rail.addresses(loopback))
      open(address, wanted_port, ::if_nametoindex(rail.netdev.c_str()));
  thread_ = std::thread([this] { serve(); });
}

EchoServer::~EchoServer() {
  const std::uint64_t one = 1;
  static_cast<void>(::write(stop_.get(), &one, sizeof one));
  thread_.join();
}

void EchoServer::open(const IpAddress& address, std::uint16_t port, unsigned interface) {
  const auto same = [&](const Socket& socket) { return socket.door.address == address; };
  if (sockets_.size() == most_sockets || std::any_of(sockets_.begin(), sockets_.end(), same)) return;
  auto socket = udp_socket(address, port);
  if (!socket) socket = udp_socket(address, 0);
  if (!socket) return;  // the client learns it from the list of doors
  const auto bound = bound_port(socket->get());
  sockets_.push_back({std::move(*socket), {address, bound}, interface});
}

std::vector<EchoDoor> EchoServer::doors() const {
  std::vector<EchoDoor> all;
  for (const auto& socket : sockets_) all.push_back(socket.door);
  return all;
}

void EchoServer::serve() {
  std::vector<pollfd> waiting(1, pollfd{stop_.get(), POLLIN, 0});
  for (const auto& socket : sockets_) waiting.push_back({socket.fd.get(), POLLIN, 0});
  for (;;) {
    if (::poll(waiting.data(), waiting.size(), -1) < 0) continue;
    if (waiting[0].revents != 0) return;
    for (std::size_t i = 0; i < sockets_.size(); ++i)
      if (waiting[i + 1].revents != 0) answer(sockets_[i]);
  }
}

void EchoServer::answer(Socket& socket) {
  for (int i = 0; i < burst; ++i) {
    const auto arrival = receive_from(socket.fd.get(), room_);
    if (!arrival) return;
    const auto request = decode_request(std::span(room_).first(arrival->bytes));
    const auto from = address_of(arrival->from.storage);
    if (!request || request->secret != secret_ || bytes_left_ < request->answer_bytes ||
        std::find(clients_.begin(), clients_.end(), from) == clients_.end())
      continue;
    bytes_left_ -= request->answer_bytes;
    EchoAnswer answer{secret_, request->sequence, static_cast<std::uint32_t>(arrival->bytes), 0,
                      interface_name(arrival->interface)};
    const auto reply = std::span(reply_).first(request->answer_bytes);
    encode(answer, reply);
    const auto send = [&](std::span<const std::byte> bytes) {
      return send_through(socket.fd.get(), bytes, &arrival->from, socket.door.address, socket.interface);
    };
    if (const int error = send(reply); error != 0) {
      answer.error = static_cast<std::uint32_t>(error);
      encode(answer, reply.first(least_datagram_bytes));
      static_cast<void>(send(reply.first(least_datagram_bytes)));
    }
  }
}

}  // namespace beeline::doctor::peer
