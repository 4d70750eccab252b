// The card: devices, protection domains, regions, completion queues and queue pairs of
// this process, and the engine that pumps packets between the protocol core and the port.
//
// All functions are thread-safe unless they say otherwise. Posting takes the lock of
// that queue pair only; whoever polls drives the engine (one try-lock); a progress
// thread takes over when nobody polls. Destroying an object that is in use is an error.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/config.h"
#include "base/result.h"
#include "port/port.h"
#include "proto/queue_pair.h"

namespace beeline::nic {

// One bee device per interface with an address: bee0, bee1, …
struct Device {
  std::string name;
  port::Interface interface;
  bool active = false;                    // interface up, and so its link
  std::uint32_t max_mtu_bytes = 4096;     // RoCE path MTU values: 256 … 4096
  std::uint32_t active_mtu_bytes = 1024;  // largest that fits the interface after headers
  std::vector<Gid> gids;                  // index = GID index; all RoCE v2; all zero: the place is free
  std::uint64_t guid = 0;                 // EUI-64 from the MAC, host order
};
// Largest RoCE path MTU for a link MTU (IPv6's 40 B + UDP 8 B + 36 B of headers + 4 B of ICRC taken off).
std::uint32_t path_mtu_for_link(std::uint32_t link_mtu_bytes);
std::vector<Device> make_devices(std::span<const port::Interface> interfaces);
// What has become of a device's interface. GIDs keep their index; new ones take the first free place.
struct DeviceChange {
  bool state = false, gids = false;
};
DeviceChange update_device(Device& device, std::span<const port::Interface> interfaces);

// Limits that are advertised are limits that are enforced.
struct Limits {
  std::uint32_t queue_pairs = 65535, completion_queues = 65536, regions = 65536, domains = 65536;
  std::uint32_t queue_depth = 16384, sges = static_cast<std::uint32_t>(proto::max_sge), cq_depth = 1u << 20;
  std::uint32_t reads_per_qp = 16;  // READs and atomics, per direction
  std::uint32_t shared_queues = 65536, shared_queue_depth = 16384;
  std::uint32_t windows = 65536;          // of both types together
  std::uint32_t address_handles = 65536;  // whoever keeps them counts them
  std::uint32_t inline_bytes = static_cast<std::uint32_t>(proto::max_inline_bytes);
};

struct CardCounters {
  std::uint64_t received = 0;
  std::uint64_t icrc_exact = 0, icrc_affine = 0, icrc_bad = 0;
  std::uint64_t trains_received = 0;  // that came whole, and were cut here (strict checking)
  std::uint64_t malformed = 0;        // parse errors, all kinds
  std::uint64_t no_queue_pair = 0;    // no such QPN here
  std::uint64_t wrong_peer = 0;       // not from the queue pair's peer, or not to its address
  std::uint64_t management_received = 0, management_sent = 0;  // datagrams of queue pair 1
  std::uint64_t management_odd = 0;                            // to queue pair 1, but none of its datagrams
  std::uint64_t sent = 0, send_faults = 0, send_no_room = 0;
  std::uint64_t wire_payload_sent = 0, wire_payload_received = 0;    // bytes, per lane: the wire
  std::uint64_t local_payload_sent = 0, local_payload_received = 0;  // shared memory
  // Of those sent: by stores into the peer's memory, which the peer's card does not see coming.
  std::uint64_t local_payload_stored = 0;
  std::uint64_t local_processes = 0;         // connections of the local lane now,
  std::uint64_t local_processes_direct = 0;  // and over how many both sides copy from each other directly
};

// Called with the completion queue's cookie when an armed queue gets a completion; from any
// thread, must not block nor call back into the card.
using Notifier = void (*)(void* cookie);

// What happens to an object beside completions (IBTA vol. 1, 11.6.3).
enum class CardEvent : std::uint8_t {
  completion_queue_error,  // of a completion queue: it overran
  qp_communication_established,
  qp_send_queue_drained,
  qp_fatal,
  qp_invalid_request,
  qp_access_violation,
  qp_last_request_reached,
  shared_queue_limit,  // of a shared receive queue: fewer than the armed limit are left
};

// Called with the cookie given to the object that the event is of; from any thread, must not block nor
// call back into the card. Not called any more once destroying the object has returned.
using EventSink = void (*)(void* cookie, CardEvent event);

// What happens to a device's port (IBTA vol. 1, 11.6.3.3 and 11.6.3.4).
enum class PortEvent : std::uint8_t { active, error, gids_changed };

// Called with its own cookie; from any thread, must not block nor call back into the card.
using PortSink = void (*)(void* cookie, int device, PortEvent event);

class ManagementAgent;
class CompletionQueue;  // opaque
class QueuePair;        // opaque
class SharedQueue;      // opaque: a receive queue that several queue pairs take from

struct RegionKeys {
  Key lkey{};
  Key rkey{};
};

struct QpRequest {
  int device = 0;  // index into devices()
  PdId domain;
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* receive_cq = nullptr;
  proto::QpLimits limits;
  proto::QpType type = proto::QpType::rc;
  SharedQueue* shared_queue = nullptr;  // of the same domain; limits.receive_* mean nothing then
  EventSink events = nullptr;
  void* cookie = nullptr;  // of `events`
};

// What a change of a region changes (ibv_rereg_mr(3)); what is left out stays.
struct RegionChange {
  struct Range {
    void* address = nullptr;
    std::size_t bytes = 0;
    std::uint64_t iova = 0;  // ignored for a zero-based region
  };
  std::optional<PdId> domain = {};
  std::optional<Range> range = {};
  std::optional<proto::Access> access = {};
};

// Memory windows (IBTA vol. 1, 10.6.7.2): one of type 1 serves its domain, and binding it again moves it; one
// of type 2 serves the queue pair that bound it, and must be invalidated before it is bound again. Values as
// in enum ibv_mw_type.
enum class WindowType : std::uint8_t { type_1 = 1, type_2 = 2 };

// Where to send: the address vector of a modify with proto::attr::address_vector, or an address handle.
struct AddressVector {
  int gid_index = 0;  // of the device of the queue pair, or of the handle
  Gid destination;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
};

class Card {
 public:
  // `interfaces` become the devices; sockets are opened when a queue pair first needs
  // them. Starts the progress thread unless `progress_thread` is false.
  static Result<std::unique_ptr<Card>> create(const Config& config, std::unique_ptr<port::Port> port,
                                              std::span<const port::Interface> interfaces,
                                              bool progress_thread = true);
  virtual ~Card() = default;  // destroys what is left

  // As they are now: links and addresses come and go, devices do not.
  virtual std::vector<Device> devices() const = 0;
  virtual Device device(int index) const = 0;  // one of them
  // From now on devices follow the host's links and addresses. Without it they stay what they were made as.
  virtual void follow_host() = 0;
  // From now on the sink is called. Not any more once it was taken away, by its cookie.
  virtual void add_port_sink(PortSink sink, void* cookie) = 0;
  virtual void remove_port_sink(void* cookie) = 0;
  virtual const Limits& limits() const = 0;
  virtual CardCounters counters() const = 0;
  virtual port::PortCounters port_counters() const = 0;
  // True when the ICRC of every received packet is checked exactly, false when over IPv4 any IP
  // identification that explains it is accepted (counters().icrc_affine).
  virtual bool checks_icrc_strictly() const = 0;

  virtual Result<PdId> create_domain() = 0;
  virtual Result<void> destroy_domain(PdId domain) = 0;

  // Work requests and peers call the region's first byte `iova`, or 0 with Access::zero_based. Rights of
  // peers to write or to do atomics need local_write. Closing waits until no copy is under way (the
  // region's gate); afterwards nothing lands in that memory. A region with windows bound is in use.
  virtual Result<RegionKeys> register_region(PdId domain, void* address, std::size_t bytes,
                                             std::uint64_t iova, proto::Access access) = 0;
  virtual Result<void> deregister_region(Key lkey) = 0;
  // Takes the region away, changes it and gives it back under the same keys: packets that come in between are
  // refused. When it fails the region is as it was. Not for a region with windows bound.
  virtual Result<RegionKeys> reregister_region(Key lkey, const RegionChange& change) = 0;

  // Memory that a peer of this host can write to by itself once it lies in a region that it may write to: its
  // short WRITEs are stores there, and the bytes of long ones may be seen before operations that were posted
  // earlier are executed (a completion means what it always does). Whoever maps one piece has all of it, so
  // what different peers write to is allocated apart. Whole pages, all zero; not inherited by a forked child.
  // Deregister before freeing.
  virtual Result<void*> allocate_memory(std::size_t bytes) = 0;
  virtual Result<void> free_memory(void* memory) = 0;

  // The key is good for nothing until the window is bound by a work request (proto::WindowBind). All keys
  // that a window ever has share their upper 24 bits; of WindowBind::new_rkey only the lower 8 bits are
  // taken, whatever the type (as with ibv_inc_rkey(3)), and a type 1 window takes no key twice in a row.
  virtual Result<Key> allocate_window(PdId domain, WindowType type) = 0;
  // With any key that the window has or had.
  virtual Result<void> deallocate_window(Key rkey) = 0;

  // `notifier` and `events` get the same cookie.
  virtual Result<CompletionQueue*> create_cq(std::uint32_t depth, Notifier notifier, void* cookie,
                                             EventSink events = nullptr) = 0;
  virtual Result<void> destroy_cq(CompletionQueue* cq) = 0;
  // Completions that wait stay, in order. When more of them wait than fit, the queue is as it was.
  virtual Result<void> resize_cq(CompletionQueue* cq, std::uint32_t depth) = 0;
  // Takes completions; when there are none, drives the engine once and looks again.
  // Returns how many, or -1 after an overrun.
  virtual int poll_cq(CompletionQueue* cq, std::span<proto::Completion> out) = 0;
  // The next completion (solicited or failed ones only, if asked) calls the notifier, once.
  virtual void arm_cq(CompletionQueue* cq, bool solicited_only) = 0;

  virtual Result<SharedQueue*> create_srq(PdId domain, std::uint32_t depth, std::uint32_t sges,
                                          EventSink events = nullptr, void* cookie = nullptr) = 0;
  virtual Result<void> destroy_srq(SharedQueue* queue) = 0;
  // The first time that fewer than `limit` receives are left, there is one event; 0 asks for none.
  virtual Result<void> arm_srq(SharedQueue* queue, std::uint32_t limit) = 0;
  virtual std::uint32_t srq_limit(const SharedQueue* queue) const = 0;  // armed, or 0
  virtual proto::PostResult post_srq_recv(SharedQueue* queue, const proto::RecvWr& request) = 0;

  // Where datagrams of an address handle go; opens the address that they leave from.
  virtual Result<proto::Path> resolve_path(int device, const AddressVector& address) = 0;

  virtual Result<QueuePair*> create_qp(const QpRequest& request) = 0;
  virtual Result<void> destroy_qp(QueuePair* qp) = 0;  // drops its completions from the queues
  virtual Qpn qpn(const QueuePair* qp) const = 0;
  virtual Result<void> modify_qp(QueuePair* qp, const proto::QpAttr& attributes, std::uint32_t mask,
                                 const AddressVector* address) = 0;
  // In any state; a queue pair for datagrams has no address vector and no path MTU.
  virtual proto::QpAttr query_qp(QueuePair* qp, AddressVector* address) = 0;
  virtual proto::QpCounters qp_counters(QueuePair* qp) = 0;
  virtual proto::PostResult post_send(QueuePair* qp, const proto::SendWr& request) = 0;
  virtual proto::PostResult post_recv(QueuePair* qp, const proto::RecvWr& request) = 0;
  // How many more send requests the queue holds: polling makes it more, only posting makes it less.
  virtual std::size_t send_room(QueuePair* qp) = 0;
  // Whether it uses the local lane. It does not change after the first send.
  virtual bool is_local(QueuePair* qp) = 0;

  // --- queue pair 1 (management.h) ---
  // This process's share of what is numbered host-wide (port.h).
  virtual port::Slot slot() const = 0;
  virtual TimePoint now() const = 0;  // the clock that agents are given
  // One agent at most; nullptr takes it away: afterwards nothing calls it any more.
  virtual void set_management_agent(ManagementAgent* agent) = 0;
  // Management datagrams to this address of a device are received from now on, and can be sent from there.
  virtual Result<void> open_management(const IpAddress& local) = 0;
  // The agent has something to send, or another next timeout.
  virtual void serve_management() = 0;

  // In the child of a fork: gives up all descriptors and threads; every object is dead afterwards.
  virtual void abandon_after_fork() = 0;
};

}  // namespace beeline::nic
