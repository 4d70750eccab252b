// What the connection manager tells, as events of the identifiers that it is about.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/random.h"
#include "preload/ucma/host.h"
#include "preload/ucma/qp_attributes.h"

namespace beeline::preload::ucma {

using proto::cm::Event;
using proto::cm::EventKind;

namespace {

constexpr auto timed_out = static_cast<std::uint32_t>(-ETIMEDOUT);

// The peer's view becomes ours: what it starts, we respond to.
void fill(rdma_ucm_conn_param& param, const Event& event) {
  param.qp_num = event.end.qpn.value;
  param.qkey = event.end.qkey;
  param.responder_resources = event.end.initiator_depth;
  param.initiator_depth = event.end.responder_resources;
  param.flow_control = event.end.flow_control ? 1 : 0;
  param.retry_count = event.end.retry_count;
  param.rnr_retry_count = event.end.rnr_retry_count;
  param.srq = event.end.srq ? 1 : 0;
  param.private_data_len = event.data_bytes;
  std::memcpy(param.private_data, event.data.data(), event.data_bytes);
}

void fill(rdma_ucm_ud_param& param, const Event& event) {
  param.qp_num = event.end.qpn.value;
  param.qkey = event.end.qkey;
  param.private_data_len = event.data_bytes;
  std::memcpy(param.private_data, event.data.data(), event.data_bytes);
}

}  // namespace

rdma_ucm_event_resp Host::response_for(const Identifier& identifier, EventType event,
                                       std::uint32_t status) const {
  rdma_ucm_event_resp response{};
  response.uid = identifier.uid;
  response.id = identifier.number;
  response.event = static_cast<std::uint32_t>(event);
  response.status = status;
  return response;
}

void Host::post(Identifier& identifier, EventType event, std::uint32_t status) {
  identifier.file->push({identifier.number, response_for(identifier, event, status)});
}

void Host::distribute() {
  while (auto event = manager_.poll_event()) {
    if (event->kind == EventKind::request || event->kind == EventKind::sidr_request) {
      take_request(*event);
      continue;
    }
    const auto found = of_connection_.find(event->connection);
    if (found == of_connection_.end()) continue;
    // A program that has not accepted an identifier does not know what to do with its events.
    if (Identifier& identifier = *identifiers_.at(found->second); identifier.uid != 0)
      take_event(identifier, *event);
  }
}

// A new identifier, of which the listener's file hears.
void Host::take_request(const Event& event) {
  const auto found = of_listener_.find(event.listener);
  if (found == of_listener_.end()) return manager_.forget(card_.now(), event.connection);
  Identifier& listener = *identifiers_.at(found->second);
  const bool other_family = listener.source.is_wildcard() &&
                            (listener.source.family == AF_INET || listener.one_family) &&
                            (listener.source.family == AF_INET) != event.local.is_v4();
  const auto place = device_with(card_, event.local);
  if (other_family || !place) return manager_.forget(card_.now(), event.connection);
  // Packets that are longer than this device's would never get through. The program would learn that when it
  // sets its queue pair up, and few expect it there.
  if (event.end.path_mtu > path_mtu_of(*place)) {
    (void)manager_.reject(card_.now(), event.connection, proto::cm::RejectReason::invalid_mtu, {});
    return;
  }
  Identifier& identifier = make(*listener.file);
  identifier.space = listener.space;
  identifier.offer = listener.offer;
  identifier.passive = true;
  identifier.stage = Stage::connecting;
  identifier.owner = listener.number;
  identifier.source.family = identifier.destination.family = event.local.is_v4() ? AF_INET : AF_INET6;
  identifier.source.address = event.local;
  identifier.source.port = listener.source.port;
  identifier.destination.address = event.remote;
  identifier.destination.port = event.remote_port;
  identifier.place = place;
  identifier.type_of_service =
      listener.type_of_service != 0 ? listener.type_of_service : event.end.traffic_class;
  identifier.connection = event.connection;
  identifier.remote_end = event.end;
  identifier.local_end.psn = Psn{static_cast<std::uint32_t>(secure_random()) & Psn::mask};
  of_connection_[event.connection] = identifier.number;

  QueuedEvent queued{listener.number, response_for(identifier, EventType::connect_request, 0)};
  queued.response.uid = listener.uid;
  if (identifier.is_datagram())
    fill(queued.response.param.ud, event);
  else
    fill(queued.response.param.conn, event);
  listener.file->push(queued);
}

void Host::take_event(Identifier& identifier, const Event& event) {
  QueuedEvent queued{identifier.number, response_for(identifier, {}, 0)};
  rdma_ucm_event_resp& response = queued.response;
  EventType type{};
  switch (event.kind) {
    case EventKind::response: {
      const std::uint8_t path_mtu = identifier.remote_end.path_mtu;
      identifier.remote_end = event.end;
      identifier.remote_end.path_mtu = path_mtu;
      type = EventType::connect_response;
      fill(response.param.conn, event);
      break;
    }
    case EventKind::sidr_response:
      if (event.sidr_status != proto::cm::SidrStatus::success) {
        type = EventType::unreachable;
        response.status = static_cast<std::uint32_t>(event.sidr_status);
        response.param.ud.private_data_len = event.data_bytes;
        std::memcpy(response.param.ud.private_data, event.data.data(), event.data_bytes);
        break;
      }
      type = EventType::established;
      fill(response.param.ud, event);
      response.param.ud.ah_attr = address_of_peer(identifier);
      identifier.stage = Stage::connected;
      break;
    case EventKind::rejected:
      type = EventType::rejected;
      response.status = static_cast<std::uint32_t>(event.reason);
      response.param.conn.private_data_len = event.data_bytes;
      std::memcpy(response.param.conn.private_data, event.data.data(), event.data_bytes);
      break;
    case EventKind::unreachable:
      type = EventType::unreachable;
      response.status = timed_out;
      break;
    case EventKind::established:
      type = EventType::established;
      break;
    case EventKind::disconnected:
      type = EventType::disconnected;
      break;
    case EventKind::timewait_exit:
      type = EventType::timewait_exit;
      break;
    case EventKind::request:
    case EventKind::sidr_request:
      return;
  }
  response.event = static_cast<std::uint32_t>(type);
  identifier.file->push(queued);
}

}  // namespace beeline::preload::ucma
