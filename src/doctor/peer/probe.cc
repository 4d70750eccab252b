#include "doctor/peer/probe.h"

#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "doctor/peer/datagram.h"

namespace beeline::doctor::peer {
namespace {

constexpr int tries = 4;
constexpr Duration try_timeout = 250ms;

// A socket connected to the echo of one pair, with what came back on it.
struct Probe {
  Descriptor socket;
  unsigned interface = 0;
  IpAddress from;
  std::optional<EchoAnswer> answer;
  std::string answer_on;
  int error = 0;  // the last one the kernel reported
};

beeline::Result<Probe> open_probe(const Pair& pair, std::uint16_t source_port) {
  Probe probe;
  BEELINE_TRY(probe.socket, udp_socket(pair.here, source_port));
  probe.from = pair.here;
  probe.interface = ::if_nametoindex(pair.here_rail->netdev.c_str());
  const auto to = socket_address(pair.there, pair.port);
  if (::connect(probe.socket.get(), to.get(), to.length) != 0)
    return fail(Errc::io, "{}", std::strerror(errno));
  return probe;
}

void take(Probe& probe, std::span<std::byte> room, std::uint64_t secret, std::uint32_t sequence) {
  for (int i = 0; i < 16; ++i) {
    const auto arrival = receive_from(probe.socket.get(), room);
    if (!arrival) {
      if (errno != EAGAIN && errno != EINTR) probe.error = errno;
      return;
    }
    const auto answer = decode_answer(room.first(arrival->bytes));
    if (!answer || answer->secret != secret || answer->sequence != sequence) continue;
    probe.answer = answer;
    probe.answer_on = interface_name(arrival->interface);
  }
}

struct Size {
  std::uint32_t request_bytes = least_datagram_bytes, answer_bytes = least_datagram_bytes;
};

// One datagram on each probe that has no answer yet, until all have one or the time is over.
void one_round(std::vector<Probe*>& probes, std::uint64_t secret, std::uint32_t sequence, const Size& size) {
  static thread_local std::vector<std::byte> room(most_datagram_bytes);
  std::vector<std::byte> bytes(size.request_bytes);
  encode(EchoRequest{secret, sequence, size.answer_bytes}, bytes);
  for (auto* probe : probes)
    if (const int error = send_through(probe->socket.get(), bytes, nullptr, probe->from, probe->interface);
        error != 0)
      probe->error = error;
  const auto deadline = monotonic_now() + try_timeout;
  while (!probes.empty() && monotonic_now() < deadline) {
    std::vector<pollfd> waiting;
    waiting.reserve(probes.size());
    for (const auto* probe : probes) waiting.push_back({probe->socket.get(), POLLIN, 0});
    const auto left_ms = (deadline - monotonic_now()).count() / 1'000'000 + 1;
    if (::poll(waiting.data(), waiting.size(), static_cast<int>(std::max<std::int64_t>(left_ms, 0))) <= 0)
      continue;
    for (std::size_t i = 0; i < waiting.size(); ++i)
      if (waiting[i].revents != 0) take(*probes[i], room, secret, sequence);
    std::erase_if(probes, [](const Probe* probe) { return probe->answer.has_value(); });
  }
}

// Does one datagram of this size get its answer of that size? 0, EMSGSIZE, or ETIMEDOUT.
int passes(Probe& probe, std::uint64_t secret, const Size& size) {
  static thread_local std::uint32_t sequence = 1u << 20u;
  probe.error = 0;
  for (int i = 0; i < 3; ++i) {
    probe.answer.reset();
    std::vector<Probe*> one = {&probe};
    one_round(one, secret, ++sequence, size);
    if (probe.answer)
      return probe.answer->error != 0                             ? static_cast<int>(probe.answer->error)
             : probe.answer->received_bytes == size.request_bytes ? 0
                                                                  : ETIMEDOUT;
    if (probe.error == EMSGSIZE) return EMSGSIZE;
  }
  return ETIMEDOUT;
}

// The largest size of a direction that passes, between the smallest datagram and `most`.
std::uint32_t largest(Probe& probe, std::uint64_t secret, std::uint32_t most, std::uint32_t Size::*direction,
                      bool& reported) {
  std::uint32_t good = 0, bad = most + 1;
  for (std::uint32_t next = most; good + 1 < bad; next = good + (bad - good) / 2) {
    Size size;
    size.*direction = next = std::max<std::uint32_t>(next, least_datagram_bytes);
    const int error = passes(probe, secret, size);
    reported = reported || error == EMSGSIZE;
    if (error == 0)
      good = next;
    else if (next == least_datagram_bytes)
      return 0;
    else
      bad = next;
  }
  return good;
}

}  // namespace

void probe_reach(std::vector<Pair>& pairs, std::uint64_t secret) {
  constexpr std::size_t at_once = 256;  // descriptors are scarce
  for (std::size_t begin = 0; begin < pairs.size(); begin += at_once) {
    const auto count = std::min(at_once, pairs.size() - begin);
    std::vector<std::optional<Probe>> probes(count);
    for (std::size_t i = 0; i < count; ++i) {
      auto& pair = pairs[begin + i];
      if (pair.port == 0) continue;
      auto probe = open_probe(pair, 0);
      if (probe)
        probes[i] = std::move(*probe);
      else
        pair.echo.error = probe.error().message;
    }
    for (std::uint32_t attempt = 1; attempt <= tries; ++attempt) {
      std::vector<Probe*> waiting;
      for (auto& probe : probes)
        if (probe && !probe->answer) waiting.push_back(&*probe);
      if (!waiting.empty()) one_round(waiting, secret, attempt, {});
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (!probes[i]) continue;
      auto& echo = pairs[begin + i].echo;
      echo.answered = probes[i]->answer.has_value();
      echo.answer_on = probes[i]->answer_on;
      if (echo.answered) echo.request_on = probes[i]->answer->arrived_on;
      if (!echo.answered && probes[i]->error != 0) echo.error = std::strerror(probes[i]->error);
    }
  }
}

MtuResult probe_mtu(const Pair& pair, std::uint64_t secret) {
  MtuResult result;
  const auto link = std::min(pair.here_rail->link_mtu_bytes, pair.there_rail->link_mtu_bytes);
  const std::uint32_t headers = pair.here.is_v4() ? 28 : 48;
  auto probe = open_probe(pair, 0);
  if (!probe || link < 576) return result;
  result.wanted_bytes = std::min<std::uint32_t>(link - headers, most_datagram_bytes);
  result.there_bytes = largest(*probe, secret, result.wanted_bytes, &Size::request_bytes, result.reported);
  result.back_bytes = largest(*probe, secret, result.wanted_bytes, &Size::answer_bytes, result.reported);
  return result;
}

PortResult probe_ports(const Pair& pair, std::uint64_t secret) {
  PortResult result;
  std::vector<std::pair<std::uint16_t, Probe>> probes;
  for (int i = 0; i < swept_ports; ++i) {
    const auto port = static_cast<std::uint16_t>(first_source_port + i);
    auto probe = open_probe(pair, port);
    if (probe)
      probes.emplace_back(port, std::move(*probe));
    else
      result.busy.push_back(port);
  }
  for (std::uint32_t attempt = 1; attempt <= 2 * tries; ++attempt) {
    std::vector<Probe*> waiting;
    for (auto& [port, probe] : probes)
      if (!probe.answer) waiting.push_back(&probe);
    if (waiting.empty()) break;
    one_round(waiting, secret, attempt, {});
  }
  for (const auto& [port, probe] : probes)
    if (!probe.answer) result.lost.push_back(port);
  return result;
}

}  // namespace beeline::doctor::peer
