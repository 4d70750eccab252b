#include "proto/queue_pair.h"

#include <algorithm>
#include <optional>

#include "proto/local/lane.h"
#include "proto/ops/operations.h"
#include "proto/reliability/requester.h"
#include "proto/reliability/responder.h"
#include "proto/unreliable/unreliable.h"

namespace beeline::proto {

struct QueuePair::Parts {
  explicit Parts(const QpSetup& setup)
      : operations(setup),
        requester(operations, counters, setup.window_bytes),
        responder(operations, counters) {
    if (setup.type != QpType::rc) unreliable.emplace(setup, operations, counters);
    lane_rule = setup.type == QpType::rc ? setup.lane : LaneRule::wire;
    forget_lane();
  }

  static LocalBytes bytes_of(const local::Lane& lane) {
    return {lane.bytes_sent(), lane.bytes_received(), lane.bytes_stored()};
  }

  void forget_lane() {
    if (local) {
      local->close();
      carried += bytes_of(*local);
    }
    local.reset();
    lane = lane_rule == LaneRule::wire ? LaneState::wire : LaneState::undecided;
  }

  // A stock peer, or one that may use the wire only, sends first.
  void note_packet(bool is_request) {
    if (lane == LaneState::undecided && is_request && lane_rule == LaneRule::automatic &&
        operations.can_receive())
      lane = LaneState::wire;
  }

  // A batch of requests, and an ACK if there is one.
  std::size_t transmit_requests(TimePoint now, std::span<TxDesc> out) {
    if (out.empty()) return 0;
    const bool behind = ack_last && !responder.ack_goes_first() && out.size() > 1;
    std::size_t count = behind ? 0 : responder.poll_transmit(now, out, requester.wants_transmit(now));
    const std::size_t kept = responder.has_ack() ? 1 : 0;
    const std::size_t requests = requester.poll_transmit(now, out.subspan(count, out.size() - count - kept));
    if (requests != 0) responder.note_request(now);
    count += requests;
    return count + responder.poll_transmit(now, out.subspan(count), requests != 0);
  }

  // In SQD the owner may have asked to hear when nothing that has begun is left.
  void note_if_idle() {
    if (operations.state() == QpState::sqd && requester.idle()) operations.note_idle();
  }

  QpCounters counters;
  Operations operations;
  Requester requester;
  Responder responder;
  bool requests_first = false;           // whose turn it is to fill the next batch
  bool ack_last = false;                 // an ACK leaves behind requests, not before them
  std::optional<Unreliable> unreliable;  // of UC and UD, instead of requester and responder

  LaneRule lane_rule = LaneRule::wire;
  LaneState lane = LaneState::wire;
  std::optional<local::Lane> local;  // on the local lane, instead of requester and responder
  bool published = false, waited_for = false;
  LocalBytes carried;  // over lanes that have been left
};

namespace {

// There is one partition, the default one, and we are a full member: peers may be full or
// limited members of it.
bool in_our_partition(std::uint16_t pkey) {
  constexpr std::uint16_t membership = 0x8000;
  return (pkey | membership) == wire::default_pkey;
}

constexpr wire::Service service_of(QpType type) {
  constexpr wire::Service services[] = {wire::Service::rc, wire::Service::uc, wire::Service::ud};
  return services[static_cast<std::size_t>(type)];
}

bool is_request(const TxDesc& desc) { return wire::info(desc.headers.bth.opcode).is_request(); }

}  // namespace

QueuePair::QueuePair(const QpSetup& setup) : parts_(std::make_unique<Parts>(setup)) {}
QueuePair::~QueuePair() = default;

Result<void> QueuePair::modify(TimePoint now, const QpAttr& attributes, std::uint32_t mask) {
  if (parts_->unreliable) return parts_->unreliable->modify(attributes, mask);
  const QpState from = state();
  BEELINE_TRY_VOID(parts_->operations.modify(attributes, mask));
  const QpState to = state();
  if (to == QpState::reset || to == QpState::err) {
    parts_->requester.stop();
    parts_->responder.stop();
    if (to == QpState::reset) parts_->forget_lane();
  }
  if (from == QpState::init && to == QpState::rtr) parts_->responder.start();
  if (from == QpState::rtr && to == QpState::rts) parts_->requester.start();
  if (from == QpState::sqd && (mask & (attr::timeout | attr::retry_count)) != 0)
    parts_->requester.reconfigure_timer(now);
  if (parts_->local) {
    parts_->published |= parts_->local->post(now);
  } else {
    parts_->note_if_idle();
  }
  return {};
}

QpState QueuePair::state() const { return parts_->operations.state(); }
const QpAttr& QueuePair::attributes() const { return parts_->operations.attributes(); }
const QpLimits& QueuePair::limits() const { return parts_->operations.limits(); }
Qpn QueuePair::qpn() const { return parts_->operations.qpn(); }
const QpCounters& QueuePair::counters() const { return parts_->counters; }
void QueuePair::set_window(std::uint32_t window_bytes) { parts_->requester.set_window(window_bytes); }
void QueuePair::allow_ack_hold(bool allowed) { parts_->responder.allow_ack_hold(allowed); }
bool QueuePair::holds_ack(TimePoint now) const { return parts_->responder.holds_ack(now); }
void QueuePair::set_ack_last(bool last) { parts_->ack_last = last; }

std::size_t QueuePair::send_room() const {
  return parts_->operations.sends().room(parts_->operations.completions().sends());
}

PostResult QueuePair::post_send(TimePoint now, const SendWr& request) {
  if (parts_->unreliable) return parts_->unreliable->post_send(request);
  const PostResult result = parts_->operations.post_send(request);
  if (parts_->local && result == PostResult::ok) parts_->published |= parts_->local->post(now);
  return result;
}
PostResult QueuePair::post_recv(const RecvWr& request) {
  const PostResult result = parts_->operations.post_recv(request);
  if (parts_->local) parts_->waited_for |= parts_->local->note_receive();
  return result;
}

void QueuePair::handle_packet(TimePoint now, const wire::PacketView& packet, const Arrival& arrival) {
  ++parts_->counters.packets_received;
  if (packet.info->service != service_of(parts_->operations.type()) ||
      !in_our_partition(packet.headers.bth.pkey)) {
    ++parts_->counters.dropped_packets;
    return;
  }
  if (parts_->unreliable) return parts_->unreliable->handle_packet(packet, arrival);
  parts_->note_packet(packet.info->is_request());
  if (parts_->lane != LaneState::wire) {
    ++parts_->counters.dropped_packets;
  } else if (packet.info->is_request()) {
    parts_->operations.note_request();
    parts_->responder.handle_request(now, packet);
  } else {
    parts_->requester.handle_response(now, packet);
    parts_->note_if_idle();
  }
}

void QueuePair::handle_timeout(TimePoint now) {
  if (!parts_->unreliable) parts_->requester.handle_timeout(now);
}
TimePoint QueuePair::next_timeout() const {
  if (parts_->unreliable) return TimePoint::never();
  return std::min(parts_->requester.next_timeout(), parts_->responder.next_timeout());
}

bool QueuePair::wants_transmit(TimePoint now) const {
  if (parts_->unreliable) return parts_->unreliable->wants_transmit();
  if (parts_->lane != LaneState::wire) return false;
  return parts_->responder.wants_transmit(now) || parts_->requester.wants_transmit(now);
}

// Answers with data and requests share a batch half and half when both have something to send; what one
// leaves, the other may take.
std::size_t QueuePair::poll_transmit(TimePoint now, std::span<TxDesc> out) {
  if (parts_->unreliable) return parts_->unreliable->poll_transmit(out);
  if (parts_->lane != LaneState::wire) return 0;
  Requester& requester = parts_->requester;
  Responder& responder = parts_->responder;
  responder.begin_batch();
  if (!responder.has_answers()) return parts_->transmit_requests(now, out);
  const bool both = requester.wants_transmit(now);
  const std::size_t share = both ? (out.size() + 1) / 2 : out.size();
  std::size_t count = 0;
  if (parts_->requests_first) count += requester.poll_transmit(now, out.first(share));
  count += responder.poll_transmit(now, out.subspan(count, std::min(share, out.size() - count)), both);
  count += requester.poll_transmit(now, out.subspan(count));
  count += responder.poll_transmit(now, out.subspan(count), both);
  if (both) parts_->requests_first = !parts_->requests_first;
  return count;
}

void QueuePair::transmit_fault(TimePoint, const TxDesc& desc) {
  if (parts_->unreliable) {
    parts_->unreliable->transmit_fault(desc);
  } else if (is_request(desc)) {
    parts_->requester.transmit_fault(desc);
  } else {
    parts_->responder.transmit_fault(desc);
  }
}

void QueuePair::transmit_refused(TimePoint, std::span<const TxDesc> unsent) {
  if (parts_->unreliable) return parts_->unreliable->transmit_refused(unsent);
  for (std::size_t i = unsent.size(); i-- != 0;) {
    if (is_request(unsent[i])) {
      parts_->requester.take_back(unsent[i]);
    } else {
      parts_->responder.take_back(unsent[i]);
    }
  }
}

std::size_t QueuePair::poll_completions(std::span<Completion> out) {
  if (parts_->unreliable) return parts_->unreliable->poll_completions(out);
  return parts_->operations.completions().poll(out);
}
bool QueuePair::has_completions() const {
  if (parts_->unreliable) return parts_->unreliable->has_completions();
  return !parts_->operations.completions().empty();
}
QpEvent QueuePair::take_events() {
  if (parts_->unreliable) parts_->unreliable->settle();
  return parts_->operations.take_events();
}

// --- the lane

LaneState QueuePair::lane() const { return parts_->lane; }

bool QueuePair::wants_lane() const {
  return parts_->lane == LaneState::undecided && parts_->operations.can_send() &&
         !parts_->operations.sends().empty();
}

void QueuePair::note_asking() { parts_->lane = LaneState::asking; }
void QueuePair::take_wire() { parts_->lane = LaneState::wire; }

void QueuePair::take_local(local::SharedPair& pair, int side, local::PeerMemory& peer) {
  parts_->lane = LaneState::local;
  parts_->local.emplace(parts_->operations, pair, side, peer);
}

void QueuePair::leave_local() { parts_->forget_lane(); }

void QueuePair::give_up_lane(WcStatus status) {
  if (parts_->operations.can_send() && !parts_->operations.sends().empty())
    parts_->operations.fail_send(status);
}

QueuePair::Step QueuePair::step_local(TimePoint now) {
  if (!parts_->local) return {};
  const bool published = parts_->local->step(now);
  return {published, parts_->local->has_more()};
}

bool QueuePair::has_local_work() const { return parts_->local && parts_->local->has_work(); }
bool QueuePair::may_write_directly() const { return parts_->local && parts_->local->may_write_directly(); }
bool QueuePair::may_place() const { return parts_->local && parts_->local->may_place(); }
void QueuePair::note_direct_write(std::uint32_t bytes) { parts_->local->note_direct(bytes); }
PostResult QueuePair::complete_direct_write(const SendWr& request, std::uint32_t bytes) {
  const PostResult result = parts_->operations.post_send(request);
  if (result == PostResult::ok) parts_->local->complete_directly(bytes);
  return result;
}
bool QueuePair::take_waited_for() { return std::exchange(parts_->waited_for, false); }
bool QueuePair::take_published() { return std::exchange(parts_->published, false); }
void QueuePair::lose_local_peer(TimePoint now) {
  if (parts_->local) parts_->local->lose_peer(now);
}
TimePoint QueuePair::next_local_timeout() const {
  return parts_->local ? parts_->local->next_timeout() : TimePoint::never();
}
LocalBytes QueuePair::local_bytes() const {
  LocalBytes all = parts_->carried;
  if (parts_->local) all += Parts::bytes_of(*parts_->local);
  return all;
}

}  // namespace beeline::proto
