#include "nic/card.h"

#include <algorithm>

#include "base/log.h"
#include "nic/card_impl.h"
#include "nic/describe.h"

namespace beeline::nic {
namespace {

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
  auto card = std::make_unique<CardImpl>(config, std::move(port), interfaces);
  BEELINE_TRY_VOID(card->start(config, progress_thread));
  return card;
}

CardImpl::CardImpl(const Config& config, std::unique_ptr<port::Port> port,
                   std::span<const port::Interface> interfaces)
    : limits_(limits_of_this_card()),
      devices_(make_devices(interfaces)),
      inflight_bytes_(config.inflight_bytes),
      port_(std::move(port)),
      regions_(limits_.regions, limits_.windows),
      engine_(*port_, regions_) {}

Result<void> CardImpl::start(const Config& config, bool progress_thread) {
  if (config.lane != Lane::wire && port_->owns_its_slot()) {
    auto lane = local::LocalLane::create(port_->slot(), config.lane, engine_, *port_, allocations_);
    if (lane)
      lane_ = std::move(*lane);
    else if (config.lane == Lane::local)
      return tl::unexpected(std::move(lane).error());
    else
      logger()->info("everything goes over the wire: {}", lane.error().message);
  }
  if (!progress_thread) return {};
  engine_.rely_on_thread();
  thread_ = std::make_unique<ProgressThread>(engine_, *port_, lane_.get(), armed_queues_, [this] {
    if (follows_host_.load()) update_devices();
  });
  return {};
}

CardImpl::~CardImpl() {
  if (abandoned_) return;
  thread_.reset();
  if (const CardCounters counted = counters(); has_moved_anything(counted))
    logger()->debug("the card, as it ends: {}", describe(counted, port_counters()));
  while (!queue_pairs_.empty()) (void)destroy_qp(queue_pairs_.begin()->first);
}

// Locks may be held by threads that the child does not have: nothing here takes one.
void CardImpl::abandon_after_fork() {
  if (std::exchange(abandoned_, true)) return;
  // Never destroyed: its condition variable may still count the parent's thread as a waiter.
  if (thread_ != nullptr) thread_.release()->abandon_after_fork();
  (void)fault_handlers_.release();  // stay installed
  if (lane_ != nullptr) lane_->abandon_after_fork();
  allocations_.abandon_after_fork();
  port_->abandon_after_fork();
}

CardCounters CardImpl::counters() const {
  CardCounters sum;
  {
    const Engine::Exclusive engine(engine_);
    sum = engine.counters();
  }
  if (lane_ == nullptr) return sum;
  const auto payload = lane_->payload();
  const auto peers = lane_->peers();
  sum.local_payload_sent = payload.sent;
  sum.local_payload_received = payload.received;
  sum.local_payload_stored = payload.stored;
  sum.local_processes = static_cast<std::uint64_t>(peers.processes);
  sum.local_processes_direct = static_cast<std::uint64_t>(peers.direct);
  return sum;
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
                "protection domain {} still has {} regions, windows and queues: destroy those first",
                domain.value, found->second.users);
  domains_.erase(found);
  return {};
}

// Whatever lives in a domain keeps it.
Result<void> CardImpl::use_domain(PdId domain) {
  const std::lock_guard lock(mutex_);
  const auto found = domains_.find(domain.value);
  if (found == domains_.end()) return fail(Errc::not_found, "there is no protection domain {}", domain.value);
  ++found->second.users;
  return {};
}

void CardImpl::leave_domain(PdId domain) {
  const std::lock_guard lock(mutex_);
  --domains_.at(domain.value).users;
}

Result<RegionKeys> CardImpl::register_region(PdId domain, void* address, std::size_t bytes,
                                             std::uint64_t iova, proto::Access access) {
  FaultHandlers::ensure_on_top();
  BEELINE_TRY_VOID(use_domain(domain));
  const auto key = regions_.add(domain, static_cast<std::byte*>(address), bytes, iova, access);
  if (!key) {
    leave_domain(domain);
    return tl::unexpected(key.error());
  }
  return RegionKeys{*key, *key};
}

// Waits for copies under way without the card's lock: only whoever copies is in our way.
Result<void> CardImpl::deregister_region(Key lkey) {
  BEELINE_TRY(const PdId domain, regions_.remove(lkey));
  if (allocations_.forget(lkey)) lane_->revoke(lkey);
  leave_domain(domain);
  return {};
}

// The domain it moves to counts it from the start, the one it leaves until the end.
Result<RegionKeys> CardImpl::reregister_region(Key lkey, const RegionChange& change) {
  FaultHandlers::ensure_on_top();
  if (change.domain) BEELINE_TRY_VOID(use_domain(*change.domain));
  const auto before = regions_.change(lkey, change);
  if (allocations_.forget(lkey)) lane_->revoke(lkey);
  if (change.domain) leave_domain(before.value_or(*change.domain));
  if (!before) return tl::unexpected(before.error());
  return RegionKeys{lkey, lkey};
}

Result<void*> CardImpl::allocate_memory(std::size_t bytes) { return allocations_.allocate(bytes); }
Result<void> CardImpl::free_memory(void* memory) { return allocations_.free(memory); }

Result<Key> CardImpl::allocate_window(PdId domain, WindowType type) {
  BEELINE_TRY_VOID(use_domain(domain));
  auto key = regions_.add_window(domain, type);
  if (!key) leave_domain(domain);
  return key;
}

Result<void> CardImpl::deallocate_window(Key rkey) {
  BEELINE_TRY(const PdId domain, regions_.remove_window(rkey));
  leave_domain(domain);
  return {};
}

void CardImpl::set_management_agent(ManagementAgent* agent) {
  Engine::Exclusive(engine_).set_management_agent(agent);
}

Result<void> CardImpl::open_management(const IpAddress& local) {
  Engine::Exclusive engine(engine_);
  BEELINE_TRY_VOID(port_->open_address(local));
  use_port_buffers(engine);
  return {};
}

}  // namespace beeline::nic
