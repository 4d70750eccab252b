#include "nic/card.h"

#include <algorithm>

#include "base/log.h"
#include "nic/card_impl.h"
#include "nic/describe.h"

namespace beeline::nic {
namespace {

// A multiplicative hash (Knuth, 6.4), so that neighbouring queue pairs take different paths.
std::uint32_t flow_hash(Qpn qpn) { return (qpn.value * 2654435761u) >> 8; }

// More than this only lengthens the queue before the receiver: a loopback or 100 Gb/s path of 80 us
// is full with it. And buffers keep room for what is repeated after a pause of the receiver.
constexpr std::size_t max_automatic_inflight_bytes = 1 << 20;

Limits limits_of_this_card() {
  Limits limits;
  limits.queue_pairs = QpnTable::max_queue_pairs;
  return limits;
}

}  // namespace

Result<std::unique_ptr<Card>> Card::create(const Config& config, std::unique_ptr<port::Port> port,
                                           std::span<const port::Interface> interfaces,
                                           bool progress_thread) {
  if (port == nullptr) return fail(Errc::invalid_argument, "a card needs a port");
  return std::make_unique<CardImpl>(config, std::move(port), interfaces, progress_thread);
}

CardImpl::CardImpl(const Config& config, std::unique_ptr<port::Port> port,
                   std::span<const port::Interface> interfaces, bool progress_thread)
    : limits_(limits_of_this_card()),
      devices_(make_devices(interfaces)),
      inflight_bytes_(config.inflight_bytes),
      port_(std::move(port)),
      regions_(limits_.regions),
      engine_(*port_, regions_) {
  if (progress_thread) thread_ = std::make_unique<ProgressThread>(engine_, *port_, armed_queues_);
}

CardImpl::~CardImpl() {
  if (abandoned_) return;
  thread_.reset();
  if (const CardCounters counted = counters(); counted.received + counted.sent != 0)
    logger()->debug("the card, as it ends: {}", describe(counted));
  while (!queue_pairs_.empty()) (void)destroy_qp(queue_pairs_.begin()->first);
}

// Locks may be held by threads that the child does not have: nothing here takes one.
void CardImpl::abandon_after_fork() {
  if (std::exchange(abandoned_, true)) return;
  // Never destroyed: its condition variable may still count the parent's thread as a waiter.
  if (thread_ != nullptr) thread_.release()->abandon_after_fork();
  (void)fault_handlers_.release();  // stay installed
  port_->abandon_after_fork();
}

CardCounters CardImpl::counters() const {
  const Engine::Exclusive engine(engine_);
  return engine.counters();
}

port::PortCounters CardImpl::port_counters() const {
  Engine::Exclusive engine(engine_);
  return engine.port().counters();
}

Result<PdId> CardImpl::create_domain() {
  const std::lock_guard lock(mutex_);
  if (domains_.size() >= limits_.domains)
    return fail(Errc::resource_exhausted, "{} protection domains exist, and that is the limit",
                domains_.size());
  while (domains_.contains(next_domain_)) ++next_domain_;
  domains_[next_domain_] = {};
  return PdId{next_domain_++};
}

Result<void> CardImpl::destroy_domain(PdId domain) {
  const std::lock_guard lock(mutex_);
  const auto found = domains_.find(domain.value);
  if (found == domains_.end()) return fail(Errc::not_found, "there is no protection domain {}", domain.value);
  if (found->second.users > 0)
    return fail(Errc::in_use,
                "protection domain {} still has {} regions and queue pairs: destroy those first",
                domain.value, found->second.users);
  domains_.erase(found);
  return {};
}

Result<RegionKeys> CardImpl::register_region(PdId domain, void* address, std::size_t bytes,
                                             std::uint64_t iova, proto::Access access) {
  FaultHandlers::ensure_on_top();
  const std::lock_guard lock(mutex_);
  const auto found = domains_.find(domain.value);
  if (found == domains_.end()) return fail(Errc::not_found, "there is no protection domain {}", domain.value);
  BEELINE_TRY(const Key key, regions_.add(domain, static_cast<std::byte*>(address), bytes, iova, access));
  ++found->second.users;
  return RegionKeys{key, key};
}

// Waits for copies under way without the card's lock: only whoever copies is in our way.
Result<void> CardImpl::deregister_region(Key lkey) {
  BEELINE_TRY(const PdId domain, regions_.remove(lkey));
  const std::lock_guard lock(mutex_);
  --domains_.at(domain.value).users;
  return {};
}

Result<CompletionQueue*> CardImpl::create_cq(std::uint32_t depth, Notifier notifier, void* cookie) {
  if (depth == 0 || depth > limits_.cq_depth)
    return fail(Errc::invalid_argument, "a completion queue of {} entries: give 1 … {}", depth,
                limits_.cq_depth);
  const std::lock_guard lock(mutex_);
  if (queues_.size() >= limits_.completion_queues)
    return fail(Errc::resource_exhausted, "{} completion queues exist, and that is the limit",
                queues_.size());
  auto queue = std::make_unique<CompletionQueue>(depth, notifier, cookie, armed_queues_);
  CompletionQueue* handle = queue.get();
  queues_.emplace(handle, std::move(queue));
  return handle;
}

Result<void> CardImpl::destroy_cq(CompletionQueue* cq) {
  const std::lock_guard lock(mutex_);
  const auto found = queues_.find(cq);
  if (found == queues_.end()) return fail(Errc::not_found, "there is no such completion queue");
  if (cq->users > 0)
    return fail(Errc::in_use, "{} queue pairs complete into this completion queue: destroy those first",
                cq->users);
  queues_.erase(found);
  return {};
}

int CardImpl::poll_cq(CompletionQueue* cq, std::span<proto::Completion> out) {
  if (const int n = cq->poll(out); n != 0 || out.empty()) return n;
  engine_.poll();
  return cq->poll(out);
}

void CardImpl::arm_cq(CompletionQueue* cq, bool solicited_only) {
  cq->arm(solicited_only);
  if (thread_ != nullptr) thread_->listen();
}

Result<void> CardImpl::check_request(const QpRequest& request) const {
  const auto& wanted = request.limits;
  if (request.device < 0 || static_cast<std::size_t>(request.device) >= devices_.size())
    return fail(Errc::not_found, "there is no device {}; there are {}", request.device, devices_.size());
  if (!domains_.contains(request.domain.value))
    return fail(Errc::not_found, "there is no protection domain {}", request.domain.value);
  for (CompletionQueue* queue : {request.send_cq, request.receive_cq})
    if (!queues_.contains(queue)) return fail(Errc::not_found, "there is no such completion queue");
  if (wanted.send_depth > limits_.queue_depth || wanted.receive_depth > limits_.queue_depth)
    return fail(Errc::invalid_argument, "queues of {} and {} work requests: at most {} are possible",
                wanted.send_depth, wanted.receive_depth, limits_.queue_depth);
  if (wanted.send_sges > limits_.sges || wanted.receive_sges > limits_.sges)
    return fail(Errc::invalid_argument, "{} and {} pieces per work request: at most {} are possible",
                wanted.send_sges, wanted.receive_sges, limits_.sges);
  if (wanted.inline_bytes > proto::max_inline_bytes)
    return fail(Errc::invalid_argument, "{} bytes inline: at most {} are possible", wanted.inline_bytes,
                proto::max_inline_bytes);
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
  Engine::Exclusive engine(engine_);
  BEELINE_TRY(setup.qpn, engine.draw_number());
  auto qp = std::make_unique<QueuePair>(setup, request);
  QueuePair* handle = qp.get();
  queue_pairs_.emplace(handle, std::move(qp));
  engine.add(*handle);
  ++domains_.at(request.domain.value).users;
  ++request.send_cq->users;
  ++request.receive_cq->users;
  return handle;
}

Result<void> CardImpl::destroy_qp(QueuePair* qp) {
  const std::lock_guard lock(mutex_);
  const auto found = queue_pairs_.find(qp);
  if (found == queue_pairs_.end()) return fail(Errc::not_found, "there is no such queue pair");
  Engine::Exclusive(engine_).remove(*qp);
  qp->send_cq->purge(qp->qpn);
  qp->receive_cq->purge(qp->qpn);
  --qp->send_cq->users;
  --qp->receive_cq->users;
  --domains_.at(qp->domain.value).users;
  queue_pairs_.erase(found);
  return {};
}

void CardImpl::use_port_buffers(Engine::Exclusive& engine) {
  const std::size_t automatic = std::min(port_->receive_buffer_bytes(), max_automatic_inflight_bytes);
  engine.set_inflight_bytes(inflight_bytes_ != 0 ? inflight_bytes_ : automatic);
}

// Opens the socket of the local address, when this queue pair is its first user.
Result<Route> CardImpl::open_route(const QueuePair& qp, const AddressVector& address) {
  const Device& device = devices_[static_cast<std::size_t>(qp.device)];
  if (address.gid_index < 0 || static_cast<std::size_t>(address.gid_index) >= device.gids.size())
    return fail(Errc::invalid_argument, "{} has no GID index {}: it has {}", device.name, address.gid_index,
                device.gids.size());
  Route route;
  route.local = device.gids[static_cast<std::size_t>(address.gid_index)];
  route.remote = address.destination;
  if (route.remote.is_zero()) return fail(Errc::invalid_argument, "the destination GID is all zero");
  if (route.local.is_v4() != route.remote.is_v4())
    return fail(Errc::invalid_argument,
                "{} (GID index {} of {}) cannot reach {}: one is IPv4, the other IPv6",
                to_string(route.local), address.gid_index, device.name, to_string(route.remote));
  Engine::Exclusive engine(engine_);
  BEELINE_TRY_VOID(port_->open_address(route.local));
  BEELINE_TRY(route.source_port, port_->source_port(route.local, flow_hash(qp.qpn)));
  use_port_buffers(engine);
  route.known = true;
  return route;
}

Result<void> CardImpl::modify_qp(QueuePair* qp, const proto::QpAttr& attributes, std::uint32_t mask,
                                 const AddressVector* address) {
  const Device& device = devices_[static_cast<std::size_t>(qp->device)];
  if ((mask & proto::attr::path_mtu) != 0 && attributes.path_mtu_bytes > device.active_mtu_bytes)
    return fail(Errc::invalid_argument, "path MTU {}: {} ({}, MTU {}) carries at most {}",
                attributes.path_mtu_bytes, device.name, device.interface.name, device.interface.mtu,
                device.active_mtu_bytes);
  Route route;
  if ((mask & proto::attr::address_vector) != 0) {
    if (address == nullptr)
      return fail(Errc::invalid_argument, "an address vector is announced but not given");
    BEELINE_TRY(route, open_route(*qp, *address));
  }
  const bool resets = (mask & proto::attr::state) != 0 && attributes.state == proto::QpState::reset;
  {
    const std::lock_guard lock(qp->mutex);
    BEELINE_TRY_VOID(qp->protocol.modify(port_->now(), attributes, mask));
    if (route.known) {
      qp->route = route;
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

proto::PostResult CardImpl::post_send(QueuePair* qp, const proto::SendWr& request) {
  proto::PostResult result;
  {
    const std::lock_guard lock(qp->mutex);
    result = qp->protocol.post_send(port_->now(), request);
  }
  if (result == proto::PostResult::ok) engine_.serve(*qp);
  return result;
}

// Receives concern nobody until something arrives; in the error state they are flushed at once.
proto::PostResult CardImpl::post_recv(QueuePair* qp, const proto::RecvWr& request) {
  bool flushed = false;
  proto::PostResult result;
  {
    const std::lock_guard lock(qp->mutex);
    result = qp->protocol.post_recv(request);
    flushed = qp->protocol.has_completions();
  }
  if (flushed) engine_.serve(*qp);
  return result;
}

}  // namespace beeline::nic
