// The user's side: what may be done with a connection when, and what that sends.
#include "proto/cm/manager.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace beeline::proto::cm {

using wire::cm::Mad;
using wire::cm::Subject;

namespace {

template <std::size_t n>
Result<void> fill(wire::cm::PrivateData<n>& field, Bytes data, std::size_t from = 0) {
  if (data.size() > n - from)
    return fail(Errc::invalid_argument, "{} bytes of private data: this message takes {}", data.size(),
                n - from);
  std::copy(data.begin(), data.end(), field.begin() + static_cast<std::ptrdiff_t>(from));
  return {};
}

wire::cm::Path path_of(const ConnectRequest& request) {
  wire::cm::Path path;
  path.local_lid = path.remote_lid = wire::cm::permissive_lid;
  path.local = request.local;
  path.remote = request.remote;
  path.traffic_class = request.traffic_class;
  path.hop_limit = 64;
  path.ack_timeout = ack_timeout_of(request.life_time, ack_delay);
  return path;
}

wire::cm::Req req_of(const ConnectRequest& request, CommId id) {
  wire::cm::Req req;
  req.local_id = id;
  req.service_id = request.service_id;
  req.local_guid = request.end.guid;
  req.local_qpn = request.end.qpn;
  req.local_qkey = request.end.qkey;
  req.starting_psn = request.end.psn;
  req.responder_resources = request.end.responder_resources;
  req.initiator_depth = request.end.initiator_depth;
  req.remote_response_timeout = req.local_response_timeout = response_timeout;
  req.transport = request.transport;
  req.flow_control = request.end.flow_control;
  req.retry_count = request.end.retry_count;
  req.rnr_retry_count = request.end.rnr_retry_count;
  req.pkey = 0xFFFF;
  req.path_mtu = request.path_mtu;
  req.max_cm_retries = max_retries;
  req.srq = request.end.srq;
  req.primary = path_of(request);
  return req;
}

}  // namespace

Manager::Manager(std::uint8_t slot, std::function<std::uint64_t()> random, const Limits& limits)
    : slot_(slot),
      limits_(limits),
      random_(std::move(random)),
      rate_limit_(random_(), limits.requests_at_once,
                  Duration{1s} / std::max(1u, limits.requests_per_second)),
      repeat_limit_(random_(), limits.repeats_at_once,
                    Duration{1s} / std::max(1u, limits.repeats_per_second)) {}

Result<ListenerId> Manager::listen(std::uint64_t service_id, std::optional<IpAddress> local,
                                   std::uint32_t backlog, Offer offer) {
  for (const auto& [id, other] : listeners_)
    if (other.service_id == service_id && (!other.local || !local || *other.local == *local))
      return fail(Errc::in_use, "somebody listens for service {:#x} there already", service_id);
  const ListenerId id{next_listener_++};
  listeners_[id] = {service_id, local, std::max(1u, backlog), 0, offer};
  return id;
}

void Manager::unlisten(ListenerId listener) { listeners_.erase(listener); }

Result<CommId> Manager::connect(TimePoint now, const ConnectRequest& request, Bytes data) {
  wire::cm::PrivateData<92> field{};
  emit(wire::cm::IpHeader{request.local, request.remote, request.source_port}, field);
  BEELINE_TRY_VOID(fill(field, data, wire::cm::ip_header_bytes));
  BEELINE_TRY(Connection * connection, make(now, request.local, request.remote));
  wire::cm::Req req = req_of(request, connection->id);
  req.private_data = field;
  connection->state = State::req_sent;
  connection->proven = true;
  connection->local_qpn = request.end.qpn;
  connection->service_id = request.service_id;
  connection->life_time = request.life_time;
  connection->transaction = random_();
  connection->last = {connection->transaction, 0, req};
  send_waiting(now, *connection, max_retries);
  return connection->id;
}

void Manager::note_seen(CommId request) {
  if (Connection* connection = find(request); connection != nullptr) no_longer_waits(*connection);
}

Result<void> Manager::reply(TimePoint now, CommId id, const LocalEnd& end, Bytes data) {
  BEELINE_TRY(Connection * connection, find_in(id, {State::req_received}));
  wire::cm::Rep rep;
  BEELINE_TRY_VOID(fill(rep.private_data, data));
  rep.local_id = connection->id;
  rep.remote_id = connection->remote_id;
  rep.local_qpn = end.qpn;
  rep.local_qkey = end.qkey;
  rep.starting_psn = end.psn;
  rep.responder_resources = end.responder_resources;
  rep.initiator_depth = end.initiator_depth;
  rep.target_ack_delay = ack_delay;
  rep.flow_control = end.flow_control;
  rep.rnr_retry_count = end.rnr_retry_count;
  rep.srq = end.srq;
  rep.local_guid = end.guid;
  no_longer_waits(*connection);
  connection->local_qpn = end.qpn;
  connection->state = State::rep_sent;
  connection->last = {connection->transaction, 0, rep};
  send_waiting(now, *connection, max_retries);
  return {};
}

Result<void> Manager::ready(TimePoint, CommId id, Bytes data) {
  BEELINE_TRY(Connection * connection, find_in(id, {State::rep_received}));
  wire::cm::Rtu rtu;
  BEELINE_TRY_VOID(fill(rtu.private_data, data));
  rtu.local_id = connection->id;
  rtu.remote_id = connection->remote_id;
  connection->state = State::established;
  connection->last = {connection->transaction, 0, rtu};
  set_deadline(*connection, TimePoint::never());
  send(*connection, connection->last);
  return {};
}

Result<void> Manager::reject(TimePoint now, CommId id, RejectReason reason, Bytes data) {
  BEELINE_TRY(Connection * connection,
              find_in(id, {State::req_received, State::rep_sent, State::rep_received}));
  if (data.size() > std::tuple_size_v<decltype(wire::cm::Rej::private_data)>)
    return fail(Errc::invalid_argument, "{} bytes of private data are too many for a rejection", data.size());
  send_reject(*connection, reason, data);
  no_longer_waits(*connection);
  if (connection->state == State::req_received)
    erase(*connection);
  else
    enter_timewait(now, *connection);
  return {};
}

Result<void> Manager::disconnect(TimePoint now, CommId id) {
  BEELINE_TRY(Connection * connection,
              find_in(id, {State::established, State::rep_sent, State::dreq_received}));
  send_disconnect(now, *connection);
  return {};
}

Result<void> Manager::note_traffic(TimePoint, CommId id) {
  BEELINE_TRY(Connection * connection, find_in(id, {State::rep_sent}));
  connection->state = State::established;
  connection->proven = true;
  set_deadline(*connection, TimePoint::never());
  emit_event(*connection, {.kind = EventKind::established});
  return {};
}

Result<CommId> Manager::resolve_service(TimePoint now, const ConnectRequest& request, Bytes data) {
  wire::cm::SidrReq req;
  emit(wire::cm::IpHeader{request.local, request.remote, request.source_port}, req.private_data);
  BEELINE_TRY_VOID(fill(req.private_data, data, wire::cm::ip_header_bytes));
  BEELINE_TRY(Connection * connection, make(now, request.local, request.remote));
  req.request_id = connection->id;
  req.pkey = 0xFFFF;
  req.service_id = request.service_id;
  connection->state = State::sidr_req_sent;
  connection->proven = true;
  connection->service_id = request.service_id;
  connection->transaction = random_();
  connection->last = {connection->transaction, 0, req};
  send_waiting(now, *connection, max_retries);
  return connection->id;
}

Result<void> Manager::answer_service(TimePoint, CommId id, SidrStatus status, Qpn qpn, std::uint32_t qkey,
                                     Bytes data) {
  BEELINE_TRY(Connection * connection, find_in(id, {State::sidr_req_received}));
  wire::cm::SidrRep rep;
  BEELINE_TRY_VOID(fill(rep.private_data, data));
  rep.request_id = connection->remote_id;
  rep.status = status;
  rep.service_id = connection->service_id;
  if (status == SidrStatus::success) {
    rep.qpn = qpn;
    rep.qkey = qkey;
  }
  send(*connection, {connection->transaction, 0, rep});
  erase(*connection);
  return {};
}

void Manager::forget(TimePoint now, CommId id) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->forgotten) return;
  connection->forgotten = true;
  std::erase_if(events_, [&](const Event& event) { return event.connection == id; });
  switch (connection->state) {
    case State::req_sent:
      send_reject(*connection, RejectReason::timeout);
      return erase(*connection);
    case State::req_received:
      (void)reject(now, id, RejectReason::consumer, {});
      return;
    case State::rep_sent:
    case State::rep_received:
      send_reject(*connection, RejectReason::consumer);
      return enter_timewait(now, *connection);
    case State::established:
    case State::dreq_received:
      return send_disconnect(now, *connection);
    case State::sidr_req_received:
      (void)answer_service(now, id, SidrStatus::reject, {}, 0, {});
      return;
    case State::sidr_req_sent:
      return erase(*connection);
    case State::dreq_sent:
    case State::timewait:
      return;
  }
}

std::optional<State> Manager::state(CommId id) const {
  const auto found = connections_.find(id.value);
  if (found == connections_.end()) return std::nullopt;
  return found->second.state;
}

bool Manager::is_parting() const {
  return std::any_of(connections_.begin(), connections_.end(),
                     [](const auto& entry) { return entry.second.state == State::dreq_sent; });
}

void Manager::repeat_partings(TimePoint now) {
  for (auto& [id, connection] : connections_)
    if (connection.state == State::dreq_sent) send_again(now, connection);
}

std::optional<Event> Manager::poll_event() {
  if (events_.empty()) return std::nullopt;
  const Event event = events_.front();
  events_.pop_front();
  return event;
}

// --- connections ---

CommId Manager::draw_id() {
  for (;;) {
    const CommId id{std::uint32_t{slot_} << 24 | (static_cast<std::uint32_t>(random_()) & 0xFF'FFFF)};
    if ((id.value & 0xFF'FFFF) != 0 && !connections_.contains(id.value)) return id;
  }
}

// Before a new one is turned away, one in timewait goes, or one whose peer may not even exist: it has had our
// answer for some time and has not said a word.
bool Manager::make_room(TimePoint now) {
  if (connections_.size() < limits_.connections) return true;
  Connection* silent = nullptr;
  for (auto& [id, connection] : connections_) {
    if (connection.state == State::timewait && connection.forgotten) {
      erase(connection);
      return true;
    }
    if (connection.state == State::rep_sent && connection.tries > (silent == nullptr ? 0 : silent->tries))
      silent = &connection;
  }
  if (silent == nullptr) return false;
  give_up(now, *silent);
  return true;
}

Result<Manager::Connection*> Manager::make(TimePoint now, const IpAddress& local, const IpAddress& remote) {
  if (!make_room(now))
    return fail(Errc::resource_exhausted, "{} connections exist, and that is the limit", connections_.size());
  const CommId id = draw_id();
  Connection& connection = connections_[id.value];
  connection.id = id;
  connection.local = local;
  connection.remote = remote;
  return &connection;
}

Manager::Connection* Manager::find(CommId id) {
  const auto found = connections_.find(id.value);
  return found == connections_.end() ? nullptr : &found->second;
}

Result<Manager::Connection*> Manager::find_in(CommId id, std::initializer_list<State> states) {
  Connection* connection = find(id);
  if (connection == nullptr) return fail(Errc::not_found, "there is no such connection");
  if (std::find(states.begin(), states.end(), connection->state) == states.end())
    return fail(Errc::invalid_argument, "a connection in state '{}' does not allow that",
                name(connection->state));
  return connection;
}

void Manager::erase(Connection& connection) {
  no_longer_waits(connection);
  set_deadline(connection, TimePoint::never());
  if (connection.request) requests_.erase(*connection.request);
  if (connection.queue_pair) queue_pairs_.erase(*connection.queue_pair);
  connections_.erase(connection.id.value);
}

void Manager::no_longer_waits(Connection& connection) {
  const auto listener = listeners_.find(std::exchange(connection.listener, {}));
  if (listener != listeners_.end()) --listener->second.waiting;
}

void Manager::set_deadline(Connection& connection, TimePoint when) {
  if (connection.deadline != TimePoint::never()) deadlines_.erase({connection.deadline, connection.id});
  connection.deadline = when;
  if (when != TimePoint::never()) deadlines_.insert({when, connection.id});
}

// --- sending ---

void Manager::send(const IpAddress& local, const IpAddress& remote, const Mad& mad) {
  if (outgoing_.size() >= limits_.outgoing) {
    ++counters_.dropped;
    return;
  }
  outgoing_.push_back({local, remote, emit(mad)});
}

void Manager::send(const Connection& connection, const Mad& mad) {
  send(connection.local, connection.remote, mad);
}

// The last message, and again until somebody answers.
void Manager::send_waiting(TimePoint now, Connection& connection, unsigned retries) {
  connection.tries = 0;
  connection.tries_max = retries;
  send(connection, connection.last);
  set_deadline(connection, now + interval_of_try(0, connection.timeout_exponent));
}

// Whoever forged a request's source has its victim called. A peer that is really there, and has not heard us,
// repeats its request, which is answered every time.
void Manager::send_again(TimePoint now, Connection& connection) {
  if (!connection.proven && !repeat_limit_.take(connection.remote, now)) {
    ++counters_.over_limit;
    return;
  }
  ++counters_.repeated;
  send(connection, connection.last);
}

void Manager::send_reject(const Connection& connection, RejectReason reason, Bytes data) {
  wire::cm::Rej rej;
  rej.remote_id = connection.remote_id;
  rej.reason = reason;
  std::copy(data.begin(), data.end(), rej.private_data.begin());
  if (connection.state == State::req_received) {
    rej.subject = Subject::req;
  } else {
    rej.local_id = connection.id;
    rej.subject = connection.state == State::rep_received ? Subject::rep : Subject::other;
  }
  send(connection, {connection.transaction, 0, rej});
}

void Manager::send_disconnect(TimePoint now, Connection& connection) {
  if (connection.state == State::dreq_received) {
    wire::cm::Drep drep;
    drep.local_id = connection.id;
    drep.remote_id = connection.remote_id;
    connection.last = {connection.transaction, 0, drep};
    send(connection, connection.last);
    return enter_timewait(now, connection);
  }
  wire::cm::Dreq dreq;
  dreq.local_id = connection.id;
  dreq.remote_id = connection.remote_id;
  dreq.remote_qpn = connection.remote_qpn;
  connection.state = State::dreq_sent;
  connection.transaction = random_();
  connection.last = {connection.transaction, 0, dreq};
  send_waiting(now, connection, disconnect_retries);
}

void Manager::enter_timewait(TimePoint now, Connection& connection) {
  connection.state = State::timewait;
  set_deadline(connection, now + timewait);
}

void Manager::emit_event(const Connection& connection, Event event) {
  if (connection.forgotten) return;
  event.connection = connection.id;
  event.local = connection.local;
  event.remote = connection.remote;
  events_.push_back(event);
}

std::size_t Manager::poll_transmit(std::span<OutMessage> out) {
  const std::size_t count = std::min(out.size(), outgoing_.size());
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = outgoing_.front();
    outgoing_.pop_front();
  }
  return count;
}

// --- time ---

TimePoint Manager::next_timeout() const {
  return deadlines_.empty() ? TimePoint::never() : deadlines_.begin()->first;
}

void Manager::handle_timeout(TimePoint now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Connection& connection = *find(deadlines_.begin()->second);
    set_deadline(connection, TimePoint::never());
    if (connection.state == State::timewait) {
      emit_event(connection, {.kind = EventKind::timewait_exit});
      erase(connection);
    } else if (connection.tries < connection.tries_max) {
      ++connection.tries;
      send_again(now, connection);
      set_deadline(connection, now + interval_of_try(connection.tries, connection.timeout_exponent));
    } else {
      give_up(now, connection);
    }
  }
}

void Manager::give_up(TimePoint now, Connection& connection) {
  switch (connection.state) {
    case State::dreq_sent:  // gone is gone
      emit_event(connection, {.kind = EventKind::disconnected});
      return enter_timewait(now, connection);
    case State::req_received:
    case State::rep_received: {  // nobody decided in all that time
      const CommId id = connection.id;
      emit_event(connection, {.kind = EventKind::unreachable});
      send_reject(connection, RejectReason::timeout);
      return erase(*find(id));
    }
    default:
      emit_event(connection, {.kind = EventKind::unreachable});
      if (connection.state != State::sidr_req_sent) send_reject(connection, RejectReason::timeout);
      return erase(connection);
  }
}

}  // namespace beeline::proto::cm
