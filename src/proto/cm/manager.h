// The connection manager without I/O: datagrams of queue pair 1, what the user wants, and time go in;
// datagrams and events come out. IBTA vol. 1, chapter 12; where that leaves a choice, as Linux's ib_cm.
//
// Everything is bounded: connections, waiting requests per listener, new requests per source. Not for
// several threads at once.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "proto/cm/rate_limit.h"
#include "proto/cm/state.h"
#include "proto/cm/timing.h"
#include "wire/cm/ip_header.h"
#include "wire/cm/messages.h"

namespace beeline::proto::cm {

using wire::cm::CommId;
using wire::cm::RejectReason;
using wire::cm::SidrStatus;
using ListenerId = Id<struct ListenerIdTag>;

// What a listener is there for: connections of one transport (by REQ), or datagrams (by SIDR_REQ).
enum class Offer : std::uint8_t { reliable, unreliable, datagrams };

// What the user's side of a connection is, for REQ and REP.
struct LocalEnd {
  std::uint64_t guid = 0;
  Qpn qpn;
  Psn psn;  // with which the peer is to start
  std::uint32_t qkey = 0;
  std::uint8_t responder_resources = 0, initiator_depth = 0;
  std::uint8_t retry_count = 7, rnr_retry_count = 7;
  bool flow_control = false, srq = false;
};

struct ConnectRequest {
  IpAddress local, remote;
  std::uint16_t source_port = 0;
  std::uint64_t service_id = 0;
  LocalEnd end;
  std::uint8_t path_mtu = 0;  // enum ibv_mtu
  std::uint8_t traffic_class = 0;
  std::uint8_t life_time = packet_life_time;
  wire::cm::Transport transport{};
};

// What the peer said of its side.
struct RemoteEnd {
  Qpn qpn;
  Psn psn;  // with which we are to start
  std::uint32_t qkey = 0;
  std::uint8_t responder_resources = 0, initiator_depth = 0;  // as it sees it
  std::uint8_t retry_count = 0, rnr_retry_count = 0;
  bool flow_control = false, srq = false;
  std::uint8_t path_mtu = 0;     // of a REQ
  std::uint8_t ack_timeout = 0;  // that our queue pair should use
  std::uint8_t traffic_class = 0;
  wire::cm::Transport transport{};  // of a REQ
};

enum class EventKind : std::uint8_t {
  request,        // somebody wants to connect: reply() or reject()
  response,       // REP: ready() or reject()
  rejected,       // the peer's reason
  unreachable,    // no answer
  established,    // RTU
  disconnected,   // the peer went, or agreed to
  timewait_exit,  // the last that is heard of a connection
  sidr_request,   // somebody wants to know a queue pair: answer_service()
  sidr_response,
};

struct Event {
  EventKind kind{};
  CommId connection{};
  ListenerId listener{};  // of a request
  IpAddress local{}, remote{};
  std::uint16_t remote_port = 0;      // of a request
  RemoteEnd end{};                    // of requests and responses
  RejectReason reason{};              // of rejected
  SidrStatus sidr_status{};           // of sidr_response
  std::array<std::byte, 224> data{};  // the peer's private data
  std::uint8_t data_bytes = 0;        // all that the message can carry
};

struct OutMessage {
  IpAddress local, remote;
  std::array<std::byte, wire::cm::mad_bytes> bytes{};
};

struct Limits {
  std::size_t connections = 16384;
  std::size_t outgoing = 4096;  // datagrams that wait; what comes then is as if lost on the wire
  std::uint32_t requests_at_once = 4096, requests_per_second = 4096;  // per source
  // Per source, too: what is repeated to addresses from which a request came, but that have never answered.
  std::uint32_t repeats_at_once = 256, repeats_per_second = 64;
};

struct ManagerCounters {
  std::uint64_t received = 0, malformed = 0, unexpected = 0, not_from_peer = 0;
  std::uint64_t repeated = 0, over_limit = 0, stale = 0, dropped = 0;
};

class Manager {
 public:
  enum class Fate : std::uint8_t {
    taken,
    for_slot,  // another process's connection
    not_here,  // a service that nobody here listens for
    dropped,
  };
  struct Verdict {
    Fate fate = Fate::dropped;
    std::uint8_t slot = 0;
  };

  // `slot` becomes the high byte of all our communication ids; the rest comes from `random`.
  Manager(std::uint8_t slot, std::function<std::uint64_t()> random, const Limits& limits = {});

  // --- the user ---
  // No address: all of them.
  Result<ListenerId> listen(std::uint64_t service_id, std::optional<IpAddress> local, std::uint32_t backlog,
                            Offer offer = Offer::reliable);
  void unlisten(ListenerId listener);

  // Private data longer than the message takes is an error; so is any call in a state that does not
  // allow it.
  Result<CommId> connect(TimePoint now, const ConnectRequest& request, Bytes data);
  // The user knows of the request: its listener has room for the next one. As with Linux, the backlog is of
  // requests that nobody has taken yet, not of those that somebody thinks about.
  void note_seen(CommId request);
  Result<void> reply(TimePoint now, CommId connection, const LocalEnd& end, Bytes data);
  Result<void> ready(TimePoint now, CommId connection, Bytes data);
  Result<void> reject(TimePoint now, CommId connection, RejectReason reason, Bytes data);
  Result<void> disconnect(TimePoint now, CommId connection);
  // The first packet came before the RTU.
  Result<void> note_traffic(TimePoint now, CommId connection);
  Result<CommId> resolve_service(TimePoint now, const ConnectRequest& request, Bytes data);
  Result<void> answer_service(TimePoint now, CommId request, SidrStatus status, Qpn qpn, std::uint32_t qkey,
                              Bytes data);
  // The user has no interest any more: the peer is told what there is to tell, and no event comes.
  void forget(TimePoint now, CommId connection);
  std::optional<State> state(CommId connection) const;
  std::optional<Event> poll_event();

  // --- the wire ---
  Verdict handle_mad(TimePoint now, const IpAddress& local, const IpAddress& remote, Bytes mad);
  void handle_timeout(TimePoint now);
  TimePoint next_timeout() const;
  std::size_t poll_transmit(std::span<OutMessage> out);
  bool has_outgoing() const { return !outgoing_.empty(); }

  // A disconnection that the peer has not agreed to yet: who ends now may leave it waiting.
  bool is_parting() const;
  // Asks those peers once more, before it is due: nobody will be there when it is.
  void repeat_partings(TimePoint now);

  const ManagerCounters& counters() const { return counters_; }
  std::size_t connections() const { return connections_.size(); }

 private:
  struct Listener {
    std::uint64_t service_id = 0;
    std::optional<IpAddress> local;
    std::uint32_t backlog = 0, waiting = 0;
    Offer offer{};
  };
  // Names a REQ, or a SIDR_REQ, of a peer, however often it comes.
  struct RequestKey {
    IpAddress remote;
    std::uint64_t guid = 0;  // 0 for SIDR
    CommId id;
    friend auto operator<=>(const RequestKey&,
                            const RequestKey&) = default;  // NOLINT(modernize-use-nullptr)
  };
  // A queue pair of a peer. Others may know its GUID and number, so the address counts as well.
  struct QueuePairKey {
    IpAddress remote;
    std::uint64_t guid = 0;
    std::uint32_t qpn = 0;
    friend auto operator<=>(const QueuePairKey&,
                            const QueuePairKey&) = default;  // NOLINT(modernize-use-nullptr)
  };
  struct Connection {
    State state{};
    bool forgotten = false;
    bool proven = false;  // that the peer is at its address: we called it, or it has answered us
    IpAddress local, remote;
    CommId id, remote_id;
    std::uint64_t transaction = 0, service_id = 0;
    ListenerId listener;  // while the request waits
    Qpn local_qpn, remote_qpn;
    std::uint8_t life_time = packet_life_time;
    std::uint8_t timeout_exponent = response_timeout;
    unsigned tries = 0, tries_max = 0;
    TimePoint deadline = TimePoint::never();
    std::optional<RequestKey> request;
    std::optional<QueuePairKey> queue_pair;
    wire::cm::Mad last;  // what is repeated
  };

  CommId draw_id();
  Result<Connection*> make(TimePoint now, const IpAddress& local, const IpAddress& remote);
  bool make_room(TimePoint now);
  Connection* find(CommId id);
  Result<Connection*> find_in(CommId id, std::initializer_list<State> states);
  void erase(Connection& connection);
  void no_longer_waits(Connection& connection);
  bool claim_queue_pair(Connection& connection, std::uint64_t guid, Qpn qpn);

  void send(const Connection& connection, const wire::cm::Mad& mad);
  void send(const IpAddress& local, const IpAddress& remote, const wire::cm::Mad& mad);
  void send_waiting(TimePoint now, Connection& connection, unsigned tries);
  void send_again(TimePoint now, Connection& connection);
  void send_reject(const Connection& connection, RejectReason reason, Bytes data = {});
  void send_disconnect(TimePoint now, Connection& connection);
  void set_deadline(Connection& connection, TimePoint when);
  void enter_timewait(TimePoint now, Connection& connection);
  void emit_event(const Connection& connection, Event event);

  Verdict take_request(TimePoint now, const IpAddress& local, const IpAddress& remote,
                       const wire::cm::Mad& mad);
  Verdict take_sidr_request(TimePoint now, const IpAddress& local, const IpAddress& remote,
                            const wire::cm::Mad& mad);
  Verdict refuse(const IpAddress& local, const IpAddress& remote, const wire::cm::Mad& mad,
                 RejectReason reason);
  Listener* listener_for(std::uint64_t service_id, const IpAddress& local, ListenerId& id);
  bool listens(std::uint64_t service_id) const;
  Verdict take_for_connection(TimePoint now, const IpAddress& local, const IpAddress& remote,
                              const wire::cm::Mad& mad);
  void answer_unknown(TimePoint now, const IpAddress& local, const IpAddress& remote,
                      const wire::cm::Mad& mad);
  void act(TimePoint now, Connection& connection, Action action, const wire::cm::Mad& mad);
  void take_reply(TimePoint now, Connection& connection, const wire::cm::Mad& mad);
  void take_reject(TimePoint now, Connection& connection, const wire::cm::Mad& mad);
  void take_disconnect(TimePoint now, Connection& connection, const wire::cm::Mad& mad);
  void take_service(Connection& connection, const wire::cm::Mad& mad);
  void give_up(TimePoint now, Connection& connection);

  const std::uint8_t slot_;
  const Limits limits_;
  const std::function<std::uint64_t()> random_;
  RateLimit rate_limit_, repeat_limit_;
  ManagerCounters counters_;
  std::uint32_t next_listener_ = 1;
  std::map<ListenerId, Listener> listeners_;
  std::unordered_map<std::uint32_t, Connection> connections_;  // by our id
  std::map<RequestKey, CommId> requests_;
  std::map<QueuePairKey, CommId> queue_pairs_;
  std::set<std::pair<TimePoint, CommId>> deadlines_;
  std::deque<OutMessage> outgoing_;
  std::deque<Event> events_;
};

}  // namespace beeline::proto::cm
