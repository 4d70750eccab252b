#include "session.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "captures.h"

namespace beeline::test {
namespace {

const IpAddress client_address = IpAddress::v4(10, 77, 0, 3);

void append(std::vector<std::byte>& out, Bytes bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }

// The payload of the responses to a READ: packets of consecutive PSNs from its own on.
// A repeated one counts once.
std::vector<std::byte> read_payload(const Session& session, Side reader, const Event& request) {
  std::vector<std::byte> payload;
  Psn next = request.view.headers.bth.psn;
  for (const Event& event : session.events) {
    if (payload.size() >= request.view.headers.reth.length) break;
    if (event.from == reader || event.view.info->kind != wire::Kind::read_response) continue;
    if (event.view.headers.bth.psn != next) continue;
    append(payload, event.view.payload);
    ++next;
  }
  return payload;
}

// What the responder says memory held, as this machine writes numbers.
std::vector<std::byte> atomic_payload(const Session& session, Side from, const Event& request) {
  std::vector<std::byte> payload(sizeof(std::uint64_t));
  for (const Event& event : session.events) {
    const bool answers = event.from != from && event.view.info->kind == wire::Kind::atomic_acknowledge &&
                         event.view.headers.bth.psn == request.view.headers.bth.psn;
    if (answers) std::memcpy(payload.data(), &event.view.headers.atomic_before, payload.size());
  }
  return payload;
}

}  // namespace

void reparse(Event& event) {
  auto view = wire::parse(event.datagram);
  ASSERT_TRUE(view) << wire::name(view.error());
  event.view = *view;
}

Session load_session(const std::string& file, Qpn qpn) {
  Session session;
  for (RoceFrame& frame : load_golden(file).frames) {
    const auto view = wire::parse(frame.datagram);
    if (!view || view->headers.bth.destination != qpn) continue;  // QP 1 and other sessions
    const Side from = frame.ip_udp.source == client_address ? Side::client : Side::server;
    // Moving the vector keeps its bytes where the view points.
    session.events.push_back({from, frame.captured, frame.ip_udp, std::move(frame.datagram), *view});
  }
  return session;
}

std::vector<std::size_t> new_requests(const Session& session, Side from) {
  std::vector<std::size_t> indices;
  std::set<std::uint32_t> seen;
  for (std::size_t i = 0; i < session.events.size(); ++i) {
    const Event& event = session.events[i];
    if (event.from == from && event.is_request() && seen.insert(event.view.headers.bth.psn.value).second)
      indices.push_back(i);
  }
  return indices;
}

std::vector<Message> messages(const Session& session, Side from) {
  std::vector<Message> result;
  for (const std::size_t index : new_requests(session, from)) {
    const Event& event = session.events[index];
    if (event.view.info->starts_message()) result.push_back({index, event.view.info, event.view.headers, {}});
    if (event.view.info->kind == wire::Kind::read_request)
      result.back().payload = read_payload(session, from, event);
    else if (event.view.info->kind == wire::Kind::atomic_request)
      result.back().payload = atomic_payload(session, from, event);
    else
      append(result.back().payload, event.view.payload);
  }
  return result;
}

}  // namespace beeline::test
