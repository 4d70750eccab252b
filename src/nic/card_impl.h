// The card's objects and who uses whom. Data path calls go straight to the engine; creating and
// destroying goes through one lock.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "nic/card.h"
#include "nic/engine.h"
#include "nic/guarded.h"
#include "nic/local/local_lane.h"
#include "nic/progress_thread.h"
#include "nic/shared_queue.h"

namespace beeline::nic {

class CardImpl final : public Card {
 public:
  CardImpl(const Config& config, std::unique_ptr<port::Port> port,
           std::span<const port::Interface> interfaces);
  // Before anything else.
  Result<void> start(const Config& config, bool progress_thread);
  ~CardImpl() override;

  std::vector<Device> devices() const override;
  Device device(int index) const override;
  void follow_host() override;
  void add_port_sink(PortSink sink, void* cookie) override;
  void remove_port_sink(void* cookie) override;
  const Limits& limits() const override { return limits_; }
  CardCounters counters() const override;
  port::PortCounters port_counters() const override;
  bool checks_icrc_strictly() const override { return port_->sees_ip_headers(); }

  Result<PdId> create_domain() override;
  Result<void> destroy_domain(PdId domain) override;

  Result<RegionKeys> register_region(PdId domain, void* address, std::size_t bytes, std::uint64_t iova,
                                     proto::Access access) override;
  Result<void> deregister_region(Key lkey) override;

  Result<RegionKeys> reregister_region(Key lkey, const RegionChange& change) override;

  Result<void*> allocate_memory(std::size_t bytes) override;
  Result<void> free_memory(void* memory) override;

  Result<Key> allocate_window(PdId domain, WindowType type) override;
  Result<void> deallocate_window(Key rkey) override;

  Result<CompletionQueue*> create_cq(std::uint32_t depth, Notifier notifier, void* cookie,
                                     EventSink events) override;
  Result<void> destroy_cq(CompletionQueue* cq) override;
  Result<void> resize_cq(CompletionQueue* cq, std::uint32_t depth) override;
  int poll_cq(CompletionQueue* cq, std::span<proto::Completion> out) override;
  void arm_cq(CompletionQueue* cq, bool solicited_only) override;

  Result<SharedQueue*> create_srq(PdId domain, std::uint32_t depth, std::uint32_t sges, EventSink events,
                                  void* cookie) override;
  Result<void> destroy_srq(SharedQueue* queue) override;
  Result<void> arm_srq(SharedQueue* queue, std::uint32_t limit) override;
  std::uint32_t srq_limit(const SharedQueue* queue) const override;
  proto::PostResult post_srq_recv(SharedQueue* queue, const proto::RecvWr& request) override;

  Result<proto::Path> resolve_path(int device, const AddressVector& address) override;

  Result<QueuePair*> create_qp(const QpRequest& request) override;
  Result<void> destroy_qp(QueuePair* qp) override;
  Qpn qpn(const QueuePair* qp) const override { return qp->qpn; }
  Result<void> modify_qp(QueuePair* qp, const proto::QpAttr& attributes, std::uint32_t mask,
                         const AddressVector* address) override;
  proto::QpAttr query_qp(QueuePair* qp, AddressVector* address) override;
  proto::QpCounters qp_counters(QueuePair* qp) override;
  proto::PostResult post_send(QueuePair* qp, const proto::SendWr& request) override;
  proto::PostResult post_recv(QueuePair* qp, const proto::RecvWr& request) override;
  std::size_t send_room(QueuePair* qp) override;
  bool is_local(QueuePair* qp) override;

  port::Slot slot() const override { return port_->slot(); }
  TimePoint now() const override { return port_->now(); }
  void set_management_agent(ManagementAgent* agent) override;
  Result<void> open_management(const IpAddress& local) override;
  void serve_management() override { engine_.serve_management(); }

  void abandon_after_fork() override;

 private:
  struct Domain {
    std::uint32_t users = 0;  // regions, windows, queue pairs and shared receive queues
  };

  Result<void> use_domain(PdId domain);
  void leave_domain(PdId domain);
  Result<void> check_cq_depth(std::uint32_t depth) const;
  Result<void> check_request(const QpRequest& request) const;
  Result<void> check_shared_queue(const QpRequest& request) const;
  Result<Route> open_route(int device, const AddressVector& address, std::uint32_t flow);
  Result<void> open_all_addresses(int device);
  void use_port_buffers(Engine::Exclusive& engine);
  void update_devices();
  void open_new_addresses(int device);
  bool has_device(int index) const { return index >= 0 && static_cast<std::size_t>(index) < devices_.size(); }
  bool is_wires_turn();

  const Limits limits_;
  // How many there are never changes. Written under the engine and devices_mutex_: reading takes either.
  std::vector<Device> devices_;
  mutable std::mutex devices_mutex_;
  const std::size_t inflight_bytes_;  // 0: as the port's buffers allow
  std::unique_ptr<FaultHandlers> fault_handlers_ = std::make_unique<FaultHandlers>();
  std::unique_ptr<port::Port> port_;
  RegionTable regions_;
  local::SharedAllocations allocations_{regions_};
  mutable Engine engine_;
  std::unique_ptr<local::LocalLane> lane_;  // nullptr: the wire is the only one
  std::atomic<int> skipped_wire_polls_{0};  // while the local lane is polled
  std::atomic<int> warm_wire_polls_{0};     // something came over the wire: so many polls look there, too
  std::atomic<int> armed_queues_{0};
  bool abandoned_ = false;  // in the child of a fork

  std::atomic<bool> follows_host_{false};
  std::mutex following_mutex_;   // what was listed later is applied later; taken before all others
  std::mutex port_sinks_mutex_;  // held while they are called
  std::map<void*, PortSink> port_sinks_;

  std::mutex mutex_;  // the sets below; taken before the engine's
  std::unordered_map<std::uint32_t, Domain> domains_;
  std::uint32_t next_domain_ = 1;
  std::map<CompletionQueue*, std::unique_ptr<CompletionQueue>> queues_;
  std::map<SharedQueue*, std::unique_ptr<SharedQueue>> shared_queues_;
  std::map<QueuePair*, std::unique_ptr<QueuePair>> queue_pairs_;
  // Destroyed ones, the last few: a thread may stand in the middle of posting to one.
  std::array<std::unique_ptr<QueuePair>, 8> graves_;
  std::size_t next_grave_ = 0;

  std::unique_ptr<ProgressThread> thread_;  // last: it uses all of the above
};

}  // namespace beeline::nic
