// The card's queue pairs: making, changing and destroying them, and where their packets go.
#include <algorithm>

#include "base/bytes.h"
#include "nic/card_impl.h"

namespace beeline::nic {
namespace {

// A multiplicative hash (Knuth, 6.4), so that neighbouring queue pairs take different paths.
std::uint32_t flow_hash(std::uint32_t flow) { return (flow * 2654435761u) >> 8; }

// More than this only lengthens the queue before the receiver: a loopback or 100 Gb/s path of 80 us
// is full with it. And buffers keep room for what is repeated after a pause of the receiver.
constexpr std::size_t max_automatic_inflight_bytes = 1 << 20;

// A hop limit of 1 does not keep packets from crossing routers, no more than with the kernel's cards: the
// kernel takes the route's own in its place (ib_resolve_unicast_gid_dmac), and the ibv_*_pingpong rely on it.
port::IpMarks marks_of(const AddressVector& address) {
  const bool hosts_own = address.hop_limit <= 1 || address.hop_limit == AddressVector{}.hop_limit;
  return {address.traffic_class, hosts_own ? std::uint8_t{0} : address.hop_limit};
}

Result<void> check_path_mtu(const Device& device, std::uint32_t wanted_bytes) {
  if (wanted_bytes <= device.active_mtu_bytes) return {};
  return fail(Errc::invalid_argument, "path MTU {}: {} ({}, MTU {}) carries at most {}", wanted_bytes,
              device.name, device.interface.name, device.interface.mtu, device.active_mtu_bytes);
}

}  // namespace

Result<void> CardImpl::check_request(const QpRequest& request) const {
  const auto& wanted = request.limits;
  if (!has_device(request.device))
    return fail(Errc::not_found, "there is no device {}; there are {}", request.device, devices_.size());
  if (!domains_.contains(request.domain.value))
    return fail(Errc::not_found, "there is no protection domain {}", request.domain.value);
  for (CompletionQueue* queue : {request.send_cq, request.receive_cq})
    if (!queues_.contains(queue)) return fail(Errc::not_found, "there is no such completion queue");
  BEELINE_TRY_VOID(check_shared_queue(request));
  const bool own_receives = request.shared_queue == nullptr;
  if (wanted.send_depth > limits_.queue_depth || (own_receives && wanted.receive_depth > limits_.queue_depth))
    return fail(Errc::invalid_argument, "queues of {} and {} work requests: at most {} are possible",
                wanted.send_depth, wanted.receive_depth, limits_.queue_depth);
  if (wanted.send_sges > limits_.sges || (own_receives && wanted.receive_sges > limits_.sges))
    return fail(Errc::invalid_argument, "{} and {} pieces per work request: at most {} are possible",
                wanted.send_sges, wanted.receive_sges, limits_.sges);
  if (wanted.inline_bytes > proto::max_inline_bytes)
    return fail(Errc::invalid_argument, "{} bytes inline: at most {} are possible", wanted.inline_bytes,
                proto::max_inline_bytes);
  return {};
}

Result<void> CardImpl::check_shared_queue(const QpRequest& request) const {
  if (request.shared_queue == nullptr) return {};
  const auto found = shared_queues_.find(request.shared_queue);
  if (found == shared_queues_.end()) return fail(Errc::not_found, "there is no such shared receive queue");
  if (found->second->domain != request.domain)
    return fail(Errc::invalid_argument, "the shared receive queue is of another protection domain");
  return {};
}

Result<QueuePair*> CardImpl::create_qp(const QpRequest& request) {
  const std::lock_guard lock(mutex_);
  BEELINE_TRY_VOID(check_request(request));
  if (queue_pairs_.size() >= limits_.queue_pairs)
    return fail(Errc::resource_exhausted, "{} queue pairs exist, and that is the limit", queue_pairs_.size());
  proto::QpSetup setup;
  setup.domain = request.domain;
  setup.limits = request.limits;
  setup.memory = &regions_;
  setup.type = request.type;
  if (lane_ != nullptr) setup.lane = lane_->rule();
  if (request.shared_queue != nullptr) setup.shared_receives = &request.shared_queue->receives;
  QueuePair* handle = nullptr;
  {
    Engine::Exclusive engine(engine_);
    const Device& device = devices_[static_cast<std::size_t>(request.device)];
    setup.datagram_mtu_bytes = device.active_mtu_bytes;
    BEELINE_TRY(setup.qpn, engine.draw_number());
    auto qp = std::make_unique<QueuePair>(setup, request, device.gids);
    handle = qp.get();
    queue_pairs_.emplace(handle, std::move(qp));
    engine.add(*handle);
  }
  if (lane_ != nullptr) lane_->add(*handle);
  ++domains_.at(request.domain.value).users;
  ++request.send_cq->users;
  ++request.receive_cq->users;
  if (request.shared_queue != nullptr) ++request.shared_queue->users;
  return handle;
}

Result<void> CardImpl::destroy_qp(QueuePair* qp) {
  const std::lock_guard lock(mutex_);
  const auto found = queue_pairs_.find(qp);
  if (found == queue_pairs_.end()) return fail(Errc::not_found, "there is no such queue pair");
  if (lane_ != nullptr) lane_->remove(*qp);  // first: it may still give work to the engine
  {
    Engine::Exclusive engine(engine_);
    engine.remove(*qp);
    // Whoever is about to post to it finds it in RESET.
    const std::lock_guard inner(qp->mutex);
    proto::QpAttr reset;
    reset.state = proto::QpState::reset;
    (void)qp->protocol.modify(port_->now(), reset, proto::attr::state);
  }
  regions_.unbind_windows_of(qp->qpn);
  qp->send_cq->purge(qp->qpn);
  qp->receive_cq->purge(qp->qpn);
  --qp->send_cq->users;
  --qp->receive_cq->users;
  if (qp->shared_queue != nullptr) --qp->shared_queue->users;
  --domains_.at(qp->domain.value).users;
  graves_[next_grave_++ % graves_.size()] = std::move(found->second);
  queue_pairs_.erase(found);
  return {};
}

void CardImpl::use_port_buffers(Engine::Exclusive& engine) {
  const std::size_t automatic = std::min(port_->receive_buffer_bytes(), max_automatic_inflight_bytes);
  engine.set_inflight_bytes(inflight_bytes_ != 0 ? inflight_bytes_ : automatic);
}

// Opens the socket of the local address, when this queue pair or handle is its first user.
Result<Route> CardImpl::open_route(int device_index, const AddressVector& address, std::uint32_t flow) {
  const Device device = this->device(device_index);
  if (address.gid_index < 0 || static_cast<std::size_t>(address.gid_index) >= device.gids.size())
    return fail(Errc::invalid_argument, "{} has no GID index {}: it has {}", device.name, address.gid_index,
                device.gids.size());
  Route route;
  route.local = device.gids[static_cast<std::size_t>(address.gid_index)];
  if (route.local.is_zero())
    return fail(Errc::not_found, "GID index {} of {} is empty: its address is gone", address.gid_index,
                device.name);
  route.remote = address.destination;
  if (route.remote.is_zero()) return fail(Errc::invalid_argument, "the destination GID is all zero");
  if (route.local.is_v4() != route.remote.is_v4())
    return fail(Errc::invalid_argument,
                "{} (GID index {} of {}) cannot reach {}: one is IPv4, the other IPv6",
                to_string(route.local), address.gid_index, device.name, to_string(route.remote));
  Engine::Exclusive engine(engine_);
  BEELINE_TRY_VOID(port_->open_address(route.local));
  BEELINE_TRY(route.source_port, port_->source_port(route.local, flow, marks_of(address)));
  use_port_buffers(engine);
  route.known = true;
  return route;
}

// Datagrams come from anybody to any address of the device. One that the host has lost since it made the
// device gets none; but somebody else's socket on one would swallow what is ours.
Result<void> CardImpl::open_all_addresses(int device_index) {
  const Device device = this->device(device_index);
  Engine::Exclusive engine(engine_);
  Result<void> lost = fail(Errc::not_found, "{} has no address", device.name);
  std::size_t opened = 0;
  for (const Gid& address : device.gids) {
    if (address.is_zero()) continue;
    auto result = port_->open_address(address);
    if (!result && result.error().code != Errc::not_found) return result;
    if (result) port_->show_hop_limits(address);
    opened += result ? 1 : 0;
    if (!result) lost = std::move(result);
  }
  use_port_buffers(engine);
  return opened > 0 ? Result<void>{} : lost;
}

Result<proto::Path> CardImpl::resolve_path(int device, const AddressVector& address) {
  if (!has_device(device))
    return fail(Errc::not_found, "there is no device {}; there are {}", device, devices_.size());
  // Different peers take different paths.
  const auto to = std::as_bytes(std::span(address.destination.bytes));
  BEELINE_TRY(const Route route, open_route(device, address, flow_hash(load_be32(to.data() + 12))));
  return proto::Path{route.local, route.remote, route.source_port, address.traffic_class, address.hop_limit};
}

Result<void> CardImpl::modify_qp(QueuePair* qp, const proto::QpAttr& attributes, std::uint32_t mask,
                                 const AddressVector* address) {
  if ((mask & proto::attr::path_mtu) != 0)
    BEELINE_TRY_VOID(check_path_mtu(device(qp->device), attributes.path_mtu_bytes));
  Route route;
  if ((mask & proto::attr::address_vector) != 0) {
    if (address == nullptr)
      return fail(Errc::invalid_argument, "an address vector is announced but not given");
    BEELINE_TRY(route, open_route(qp->device, *address, flow_hash(qp->qpn.value)));
  }
  // From here on datagrams may come.
  if (qp->type == proto::QpType::ud && (mask & proto::attr::state) != 0 &&
      attributes.state == proto::QpState::rtr)
    BEELINE_TRY_VOID(open_all_addresses(qp->device));
  const bool resets = (mask & proto::attr::state) != 0 && attributes.state == proto::QpState::reset;
  {
    std::unique_lock<std::mutex> lane;
    if (lane_ != nullptr && resets) lane = lane_->hold();
    const std::lock_guard lock(qp->mutex);
    BEELINE_TRY_VOID(qp->protocol.modify(port_->now(), attributes, mask));
    if (lane_ != nullptr && resets) lane_->detach(*qp);
    if (lane_ != nullptr) lane_->settle(*qp, port_->now());
    if ((mask & proto::attr::access_flags) != 0 && qp->local != nullptr) qp->local->direct.revoke();
    deliver_completions(*qp, port_->now());  // flushed by this, they are there when it returns
    if (route.known) {
      qp->route = route;
      qp->protocol.set_ack_last(port_->train_max(route.local) > 1);
      qp->address = *address;
    }
    if (resets) {
      qp->route = {};
      // Completions that nobody has taken yet belong to the past (IBTA vol. 1, 10.3.1).
      qp->send_cq->purge(qp->qpn);
      qp->receive_cq->purge(qp->qpn);
    }
  }
  engine_.serve(*qp);
  return {};
}

proto::QpAttr CardImpl::query_qp(QueuePair* qp, AddressVector* address) {
  const std::lock_guard lock(qp->mutex);
  if (address != nullptr) *address = qp->address;
  proto::QpAttr attributes = qp->protocol.attributes();
  attributes.state = qp->protocol.state();
  return attributes;
}

proto::QpCounters CardImpl::qp_counters(QueuePair* qp) {
  const std::lock_guard lock(qp->mutex);
  return qp->protocol.counters();
}

bool CardImpl::is_local(QueuePair* qp) {
  const std::lock_guard lock(qp->mutex);
  return qp->protocol.lane() == proto::LaneState::local;
}

std::size_t CardImpl::send_room(QueuePair* qp) {
  const std::lock_guard lock(qp->mutex);
  return qp->protocol.send_room();
}

proto::PostResult CardImpl::post_send(QueuePair* qp, const proto::SendWr& request) {
  proto::PostResult result;
  proto::LaneState lane;
  bool flushed = false;
  {
    const std::lock_guard lock(qp->mutex);
    if (qp->local != nullptr && lane_->write_directly(*qp, request, regions_)) return proto::PostResult::ok;
    const TimePoint now = port_->now();
    if (qp->local != nullptr && lane_->place(*qp, request, regions_)) {
      proto::SendWr placed = request;
      placed.placed = true;
      result = qp->protocol.post_send(now, placed);
    } else {
      result = qp->protocol.post_send(now, request);
    }
    lane = qp->protocol.lane();
    if (lane == proto::LaneState::local) {
      lane_->settle(*qp, now);
      lane_->want(*qp, request);
    }
    flushed = qp->protocol.has_completions();  // in the error state, whatever the lane
  }
  if (result != proto::PostResult::ok) return result;
  if (lane == proto::LaneState::wire || flushed)
    engine_.serve(*qp);
  else if (lane == proto::LaneState::undecided)
    lane_->request(*qp);
  return result;
}

// Receives concern nobody until something arrives; in the error state they are flushed at once.
proto::PostResult CardImpl::post_recv(QueuePair* qp, const proto::RecvWr& request) {
  bool flushed = false, waited_for = false;
  proto::PostResult result;
  {
    const std::lock_guard lock(qp->mutex);
    result = qp->protocol.post_recv(request);
    flushed = qp->protocol.has_completions();
    waited_for = qp->protocol.take_waited_for();
  }
  if (flushed) engine_.serve(*qp);
  if (waited_for) lane_->serve();
  return result;
}

}  // namespace beeline::nic
