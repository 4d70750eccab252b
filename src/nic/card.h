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
  bool active = false;                    // interface up
  std::uint32_t max_mtu_bytes = 4096;     // RoCE path MTU values: 256 … 4096
  std::uint32_t active_mtu_bytes = 1024;  // largest that fits the interface after headers
  std::vector<Gid> gids;                  // index = GID index; all RoCE v2
  std::uint64_t guid = 0;                 // EUI-64 from the MAC, host order
};
// Largest RoCE path MTU for a link MTU (IPv6's 40 B + UDP 8 B + 36 B of headers + 4 B of ICRC taken off).
std::uint32_t path_mtu_for_link(std::uint32_t link_mtu_bytes);
std::vector<Device> make_devices(std::span<const port::Interface> interfaces);

// Limits that are advertised are limits that are enforced.
struct Limits {
  std::uint32_t queue_pairs = 65535, completion_queues = 65536, regions = 65536, domains = 65536;
  std::uint32_t queue_depth = 16384, sges = static_cast<std::uint32_t>(proto::max_sge), cq_depth = 1u << 20;
  std::uint32_t reads_per_qp = 16;
};

struct CardCounters {
  std::uint64_t received = 0;
  std::uint64_t icrc_exact = 0, icrc_affine = 0, icrc_bad = 0;
  std::uint64_t malformed = 0;      // parse errors, all kinds
  std::uint64_t no_queue_pair = 0;  // no such QPN here
  std::uint64_t wrong_peer = 0;     // not from the queue pair's peer, or not to its address
  std::uint64_t sent = 0, send_faults = 0, send_no_room = 0;
  std::uint64_t wire_payload_sent = 0, wire_payload_received = 0;  // bytes, per lane: the wire
};

// Called with the completion queue's cookie when an armed queue gets a completion; from any
// thread, must not block nor call back into the card.
using Notifier = void (*)(void* cookie);

class CompletionQueue;  // opaque
class QueuePair;        // opaque

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
};

// The address vector of a modify with proto::attr::address_vector.
struct AddressVector {
  int gid_index = 0;  // of the device of the queue pair
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

  virtual const std::vector<Device>& devices() const = 0;
  virtual const Limits& limits() const = 0;
  virtual CardCounters counters() const = 0;
  virtual port::PortCounters port_counters() const = 0;
  // True when the ICRC of every received packet is checked exactly, false when over IPv4 any IP
  // identification that explains it is accepted (counters().icrc_affine).
  virtual bool checks_icrc_strictly() const = 0;

  virtual Result<PdId> create_domain() = 0;
  virtual Result<void> destroy_domain(PdId domain) = 0;

  // Remote addresses of the region run from `iova`. Closing waits until no copy is under way
  // (the region's gate); afterwards nothing lands in that memory.
  virtual Result<RegionKeys> register_region(PdId domain, void* address, std::size_t bytes,
                                             std::uint64_t iova, proto::Access access) = 0;
  virtual Result<void> deregister_region(Key lkey) = 0;

  virtual Result<CompletionQueue*> create_cq(std::uint32_t depth, Notifier notifier, void* cookie) = 0;
  virtual Result<void> destroy_cq(CompletionQueue* cq) = 0;
  // Takes completions; when there are none, drives the engine once and looks again.
  // Returns how many, or -1 after an overrun.
  virtual int poll_cq(CompletionQueue* cq, std::span<proto::Completion> out) = 0;
  // The next completion (solicited or failed ones only, if asked) calls the notifier, once.
  virtual void arm_cq(CompletionQueue* cq, bool solicited_only) = 0;

  virtual Result<QueuePair*> create_qp(const QpRequest& request) = 0;
  virtual Result<void> destroy_qp(QueuePair* qp) = 0;  // drops its completions from the queues
  virtual Qpn qpn(const QueuePair* qp) const = 0;
  virtual Result<void> modify_qp(QueuePair* qp, const proto::QpAttr& attributes, std::uint32_t mask,
                                 const AddressVector* address) = 0;
  virtual proto::QpAttr query_qp(QueuePair* qp, AddressVector* address) = 0;
  virtual proto::QpCounters qp_counters(QueuePair* qp) = 0;
  virtual proto::PostResult post_send(QueuePair* qp, const proto::SendWr& request) = 0;
  virtual proto::PostResult post_recv(QueuePair* qp, const proto::RecvWr& request) = 0;

  // In the child of a fork: gives up all descriptors and threads; every object is dead afterwards.
  virtual void abandon_after_fork() = 0;
};

}  // namespace beeline::nic
