// The wire's side: what arrives, whose it is, and what it does.
#include <algorithm>

#include "proto/cm/manager.h"

namespace beeline::proto::cm {

using wire::cm::Mad;
using wire::cm::Subject;

namespace {

constexpr std::uint8_t mtu_min = 1, mtu_max = 5;  // enum ibv_mtu: 256 … 4096

struct Ids {
  CommId local, remote;  // as the sender sees it
};

// Of every message that belongs to a connection.
Ids ids_of(const wire::cm::Message& message) {
  return std::visit(
      [](const auto& m) -> Ids {
        using M = std::remove_cvref_t<decltype(m)>;
        if constexpr (std::is_same_v<M, wire::cm::Req>)
          return {m.local_id, {}};
        else if constexpr (std::is_same_v<M, wire::cm::SidrReq>)
          return {m.request_id, {}};
        else if constexpr (std::is_same_v<M, wire::cm::SidrRep>)
          return {{}, m.request_id};
        else
          return {m.local_id, m.remote_id};
      },
      message);
}

template <std::size_t n>
void copy_data(Event& event, const wire::cm::PrivateData<n>& data, std::size_t from = 0) {
  event.data_bytes = static_cast<std::uint8_t>(n - from);
  std::copy(data.begin() + static_cast<std::ptrdiff_t>(from), data.end(), event.data.begin());
}

RemoteEnd end_of(const wire::cm::Req& req) {
  RemoteEnd end;
  end.qpn = req.local_qpn;
  end.psn = req.starting_psn;
  end.qkey = req.local_qkey;
  end.responder_resources = req.responder_resources;
  end.initiator_depth = req.initiator_depth;
  end.retry_count = req.retry_count;
  end.rnr_retry_count = req.rnr_retry_count;
  end.flow_control = req.flow_control;
  end.srq = req.srq;
  end.path_mtu = req.path_mtu;
  end.ack_timeout = req.primary.ack_timeout;
  end.traffic_class = req.primary.traffic_class;
  end.transport = req.transport;
  return end;
}

RemoteEnd end_of(const wire::cm::Rep& rep, std::uint8_t life_time) {
  RemoteEnd end;
  end.qpn = rep.local_qpn;
  end.psn = rep.starting_psn;
  end.qkey = rep.local_qkey;
  end.responder_resources = rep.responder_resources;
  end.initiator_depth = rep.initiator_depth;
  end.rnr_retry_count = rep.rnr_retry_count;
  end.flow_control = rep.flow_control;
  end.srq = rep.srq;
  end.ack_timeout = ack_timeout_of(life_time, rep.target_ack_delay);
  return end;
}

// That the addresses which the message names are those that it came from and to: whoever answers must
// not send anything elsewhere.
bool names_its_own_addresses(const wire::cm::Req& req, const IpAddress& local, const IpAddress& remote) {
  return req.primary.local == remote && req.primary.remote == local;
}

// A program that listens for one thing does not know how to answer another.
std::optional<Offer> offer_for(wire::cm::Transport transport) {
  if (transport == wire::cm::Transport::rc) return Offer::reliable;
  if (transport == wire::cm::Transport::uc) return Offer::unreliable;
  return std::nullopt;
}

}  // namespace

Manager::Verdict Manager::handle_mad(TimePoint now, const IpAddress& local, const IpAddress& remote,
                                     Bytes bytes) {
  ++counters_.received;
  const auto mad = wire::cm::parse(bytes);
  if (!mad) {
    ++counters_.malformed;
    return {};
  }
  if (std::holds_alternative<wire::cm::Req>(mad->message)) return take_request(now, local, remote, *mad);
  if (std::holds_alternative<wire::cm::SidrReq>(mad->message))
    return take_sidr_request(now, local, remote, *mad);
  return take_for_connection(now, local, remote, *mad);
}

// --- requests ---

Manager::Listener* Manager::listener_for(std::uint64_t service_id, const IpAddress& local, ListenerId& id) {
  for (auto& [number, listener] : listeners_) {
    if (listener.service_id != service_id || (listener.local && *listener.local != local)) continue;
    id = number;
    return &listener;
  }
  return nullptr;
}

bool Manager::listens(std::uint64_t service_id) const {
  return std::any_of(listeners_.begin(), listeners_.end(),
                     [&](const auto& entry) { return entry.second.service_id == service_id; });
}

Manager::Verdict Manager::refuse(const IpAddress& local, const IpAddress& remote, const Mad& mad,
                                 RejectReason reason) {
  wire::cm::Rej rej;
  rej.remote_id = ids_of(mad.message).local;
  rej.reason = reason;
  send(local, remote, {mad.transaction, 0, rej});
  return {Fate::taken};
}

Manager::Verdict Manager::take_request(TimePoint now, const IpAddress& local, const IpAddress& remote,
                                       const Mad& mad) {
  const auto& req = std::get<wire::cm::Req>(mad.message);
  const RequestKey key{remote, req.local_guid, req.local_id};
  if (const auto known = requests_.find(key); known != requests_.end()) {
    Connection& connection = *find(known->second);
    if (connection.local != local) return {};
    act(now, connection, action_of(connection.state, mad.message.index()), mad);
    return {Fate::taken};
  }
  ListenerId id;
  Listener* listener = listener_for(req.service_id, local, id);
  if (listener == nullptr && !listens(req.service_id)) return {Fate::not_here};
  if (!rate_limit_.take(remote, now)) {
    ++counters_.over_limit;
    return {};
  }
  if (listener == nullptr) return refuse(local, remote, mad, RejectReason::invalid_service_id);
  if (offer_for(req.transport) != listener->offer)
    return refuse(local, remote, mad, RejectReason::invalid_transport);
  const auto ip = wire::cm::parse_ip_header(req.private_data);
  if (!ip || !names_its_own_addresses(req, local, remote) || req.path_mtu < mtu_min || req.path_mtu > mtu_max)
    return refuse(local, remote, mad, RejectReason::unsupported);
  if (listener->waiting >= listener->backlog) {  // it will ask again
    ++counters_.over_limit;
    return {};
  }
  auto made = make(now, local, remote);
  if (!made) return refuse(local, remote, mad, RejectReason::no_resources);
  Connection& connection = **made;
  connection.state = State::req_received;
  connection.remote_id = req.local_id;
  connection.transaction = mad.transaction;
  connection.service_id = req.service_id;
  // No longer than we wait ourselves: a stranger cannot have us repeat ourselves for hours.
  connection.timeout_exponent = std::min(req.local_response_timeout, response_timeout);
  if (!claim_queue_pair(connection, req.local_guid, req.local_qpn)) {
    erase(connection);
    return refuse(local, remote, mad, RejectReason::stale_connection);
  }
  connection.request = key;
  requests_[key] = connection.id;
  connection.listener = id;
  ++listener->waiting;
  connection.tries = connection.tries_max = 0;
  set_deadline(connection, now + 2 * time_of_exponent(service_timeout));
  Event event{.kind = EventKind::request, .listener = id, .remote_port = ip->source_port, .end = end_of(req)};
  copy_data(event, req.private_data, wire::cm::ip_header_bytes);
  emit_event(connection, event);
  return {Fate::taken};
}

// A queue pair of a peer has one connection. Whoever asks for a second has forgotten the first, perhaps
// because it ended without a word: the old one is told that it is over (IBTA vol. 1, 12.4.1).
bool Manager::claim_queue_pair(Connection& connection, std::uint64_t guid, Qpn qpn) {
  connection.remote_qpn = qpn;
  if (qpn == Qpn{}) return true;
  const QueuePairKey key{connection.remote, guid, qpn.value};
  const auto found = queue_pairs_.find(key);
  if (found == queue_pairs_.end()) {
    queue_pairs_[key] = connection.id;
    connection.queue_pair = key;
    return true;
  }
  ++counters_.stale;
  Connection& old = *find(found->second);
  old.queue_pair.reset();
  queue_pairs_.erase(found);
  if (old.state == State::established) {
    old.state = State::dreq_received;
    emit_event(old, {.kind = EventKind::disconnected});
  }
  return false;
}

Manager::Verdict Manager::take_sidr_request(TimePoint now, const IpAddress& local, const IpAddress& remote,
                                            const Mad& mad) {
  const auto& req = std::get<wire::cm::SidrReq>(mad.message);
  const RequestKey key{remote, 0, req.request_id};
  if (requests_.contains(key)) return {Fate::taken};  // the user thinks
  ListenerId id;
  Listener* listener = listener_for(req.service_id, local, id);
  if (listener == nullptr && !listens(req.service_id)) return {Fate::not_here};
  if (!rate_limit_.take(remote, now)) {
    ++counters_.over_limit;
    return {};
  }
  const auto ip = wire::cm::parse_ip_header(req.private_data);
  if (listener == nullptr || listener->offer != Offer::datagrams || !ip) {
    wire::cm::SidrRep rep;
    rep.request_id = req.request_id;
    rep.status = SidrStatus::unsupported;
    rep.service_id = req.service_id;
    send(local, remote, {mad.transaction, 0, rep});
    return {Fate::taken};
  }
  auto made = listener->waiting < listener->backlog ? make(now, local, remote)
                                                    : fail(Errc::resource_exhausted, "backlog");
  if (!made) {
    ++counters_.over_limit;
    return {};
  }
  Connection& connection = **made;
  connection.state = State::sidr_req_received;
  connection.remote_id = req.request_id;
  connection.transaction = mad.transaction;
  connection.service_id = req.service_id;
  connection.request = key;
  requests_[key] = connection.id;
  connection.listener = id;
  ++listener->waiting;
  set_deadline(connection, now + 2 * time_of_exponent(service_timeout));
  Event event{.kind = EventKind::sidr_request, .listener = id, .remote_port = ip->source_port};
  copy_data(event, req.private_data, wire::cm::ip_header_bytes);
  emit_event(connection, event);
  return {Fate::taken};
}

// --- what belongs to a connection ---

Manager::Verdict Manager::take_for_connection(TimePoint now, const IpAddress& local, const IpAddress& remote,
                                              const Mad& mad) {
  const Ids ids = ids_of(mad.message);
  const auto slot = static_cast<std::uint8_t>(ids.remote.value >> 24);
  if (slot != slot_) return {Fate::for_slot, slot};
  Connection* connection = find(ids.remote);
  if (connection == nullptr) {
    answer_unknown(now, local, remote, mad);
    return {Fate::taken};
  }
  // Its id must be the one we know; before a REP we know none, and a REJ or MRA of a REQ may have none.
  const bool may_have_none = std::holds_alternative<wire::cm::Rej>(mad.message) ||
                             std::holds_alternative<wire::cm::Mra>(mad.message);
  const bool names_us = connection->remote_id == CommId{} || ids.local == connection->remote_id ||
                        (may_have_none && ids.local == CommId{});
  // And a DREQ names our queue pair, too: one number more for a stranger to guess.
  const auto* dreq = std::get_if<wire::cm::Dreq>(&mad.message);
  const bool names_queue_pair = dreq == nullptr || dreq->remote_qpn == connection->local_qpn;
  if (connection->remote != remote || connection->local != local || !names_us || !names_queue_pair) {
    ++counters_.not_from_peer;
    return {};
  }
  act(now, *connection, action_of(connection->state, mad.message.index()), mad);
  return {Fate::taken};
}

// Whoever asks us to end what we do not know is told that it has ended; whoever thinks to have a
// connection with us is told that there is none.
void Manager::answer_unknown(TimePoint now, const IpAddress& local, const IpAddress& remote, const Mad& mad) {
  ++counters_.unexpected;
  const Ids ids = ids_of(mad.message);
  const bool is_dreq = std::holds_alternative<wire::cm::Dreq>(mad.message);
  const bool is_rep = std::holds_alternative<wire::cm::Rep>(mad.message);
  if ((!is_dreq && !is_rep) || !rate_limit_.take(remote, now)) return;
  if (is_dreq) {
    wire::cm::Drep drep;
    drep.local_id = ids.remote;
    drep.remote_id = ids.local;
    return send(local, remote, {mad.transaction, 0, drep});
  }
  wire::cm::Rej rej;
  rej.local_id = ids.remote;
  rej.remote_id = ids.local;
  rej.subject = Subject::rep;
  rej.reason = RejectReason::invalid_comm_id;
  send(local, remote, {mad.transaction, 0, rej});
}

void Manager::act(TimePoint now, Connection& connection, Action action, const Mad& mad) {
  switch (action) {
    case Action::ignore:
      ++counters_.unexpected;
      return;
    case Action::repeat:
      ++counters_.repeated;
      return send(connection, connection.last);
    case Action::say_thinking: {
      wire::cm::Mra mra;
      mra.local_id = connection.id;
      mra.remote_id = connection.remote_id;
      mra.subject = connection.state == State::req_received ? Subject::req : Subject::rep;
      mra.service_timeout = service_timeout;
      return send(connection, {connection.transaction, 0, mra});
    }
    case Action::wait_longer: {
      const auto& mra = std::get<wire::cm::Mra>(mad.message);
      const bool is_ours = mra.subject == (connection.state == State::req_sent ? Subject::req : Subject::rep);
      if (!is_ours) return;
      // No longer than we would have a user think: a stranger cannot keep a connection for hours.
      const auto exponent = std::min(mra.service_timeout, service_timeout);
      return set_deadline(connection, now + time_of_exponent(exponent) + time_of_exponent(response_timeout));
    }
    case Action::take_reply:
      return take_reply(now, connection, mad);
    case Action::take_reject:
      return take_reject(now, connection, mad);
    case Action::become_ready: {
      connection.state = State::established;
      connection.proven = true;
      set_deadline(connection, TimePoint::never());
      Event event{.kind = EventKind::established};
      copy_data(event, std::get<wire::cm::Rtu>(mad.message).private_data);
      return emit_event(connection, event);
    }
    case Action::take_disconnect:
      return take_disconnect(now, connection, mad);
    case Action::agree_at_once:
      connection.state = State::dreq_received;
      connection.transaction = mad.transaction;
      emit_event(connection, {.kind = EventKind::disconnected});
      return send_disconnect(now, connection);
    case Action::finish:
      emit_event(connection, {.kind = EventKind::disconnected});
      return enter_timewait(now, connection);
    case Action::take_service:
      return take_service(connection, mad);
  }
}

void Manager::take_reply(TimePoint now, Connection& connection, const Mad& mad) {
  const auto& rep = std::get<wire::cm::Rep>(mad.message);
  if (mad.transaction != connection.transaction) return;
  connection.remote_id = rep.local_id;
  if (!claim_queue_pair(connection, rep.local_guid, rep.local_qpn)) {
    send_reject(connection, RejectReason::stale_connection);
    emit_event(connection, {.kind = EventKind::rejected, .reason = RejectReason::stale_connection});
    return erase(connection);
  }
  connection.state = State::rep_received;
  connection.tries = connection.tries_max = 0;
  set_deadline(connection, now + 2 * time_of_exponent(service_timeout));
  Event event{.kind = EventKind::response, .end = end_of(rep, connection.life_time)};
  copy_data(event, rep.private_data);
  emit_event(connection, event);
}

void Manager::take_reject(TimePoint now, Connection& connection, const Mad& mad) {
  const auto& rej = std::get<wire::cm::Rej>(mad.message);
  if (connection.state == State::req_sent && mad.transaction != connection.transaction) return;
  const State before = connection.state;
  Event event{.kind = EventKind::rejected, .reason = rej.reason};
  copy_data(event, rej.private_data);
  emit_event(connection, event);
  no_longer_waits(connection);
  if (before == State::rep_received)
    enter_timewait(now, connection);
  else
    erase(connection);
}

void Manager::take_disconnect(TimePoint now, Connection& connection, const Mad& mad) {
  connection.state = State::dreq_received;
  connection.transaction = mad.transaction;
  set_deadline(connection, TimePoint::never());
  emit_event(connection, {.kind = EventKind::disconnected});
  if (connection.forgotten) send_disconnect(now, connection);
}

void Manager::take_service(Connection& connection, const Mad& mad) {
  const auto& rep = std::get<wire::cm::SidrRep>(mad.message);
  if (mad.transaction != connection.transaction) return;
  Event event{.kind = EventKind::sidr_response};
  event.sidr_status = rep.status;
  event.end.qpn = rep.qpn;
  event.end.qkey = rep.qkey;
  copy_data(event, rep.private_data);
  emit_event(connection, event);
  erase(connection);
}

}  // namespace beeline::proto::cm
