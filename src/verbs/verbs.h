// Verbs with owners: each object frees itself through its provider (declare what others
// stand on first: what is in use is not freed), and creation is a Result whose message
// names device and cause.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/config.h"
#include "base/result.h"
#include "verbs/provider.h"

namespace beeline::verbs {

// unique_ptr whose deleter calls `Free` on the provider.
template <class T, int (Provider::*Free)(T*)>
struct Deleter {
  Provider* provider = nullptr;
  void operator()(T* object) const {
    if (object != nullptr) (provider->*Free)(object);
  }
};
template <class T, int (Provider::*Free)(T*)>
using Owned = std::unique_ptr<T, Deleter<T, Free>>;

using Context = Owned<ibv_context, &Provider::close_device>;
using ProtectionDomain = Owned<ibv_pd, &Provider::dealloc_pd>;
using MemoryRegion = Owned<ibv_mr, &Provider::dereg_mr>;
using CompletionChannel = Owned<ibv_comp_channel, &Provider::destroy_comp_channel>;
using CompletionQueue = Owned<ibv_cq, &Provider::destroy_cq>;
using QueuePair = Owned<ibv_qp, &Provider::destroy_qp>;

struct GidChoice {
  int index = 0;
  Gid gid;
};
struct GidSlot {
  int index = 0;
  Gid gid;
  std::uint32_t type = IBV_GID_TYPE_ROCE_V2;  // ibv_gid_type
};
// One port of a device.
struct DeviceSummary {
  std::string name;
  std::string provider = "soft";
  std::uint8_t port = 1;
  bool active = false;
  std::string link = "Ethernet";  // "InfiniBand", "iWARP"
  double gbit_per_s = 0;          // 0: unknown
  std::string netdev;             // empty when unknown
  std::uint32_t active_mtu_bytes = 0, max_mtu_bytes = 0;
  std::uint64_t guid = 0;           // host order
  std::string trouble;              // why it could not be opened
  std::vector<GidChoice> gids;      // what can be used: readable, non-zero, RoCE v2
  std::vector<GidSlot> other_gids;  // readable, non-zero, of other types: never chosen
};

// Everything the provider lists, in its order; each port of a device by itself.
Result<std::vector<DeviceSummary>> summarize_devices(Provider& provider);

// Opens `name`. When it is empty: of the devices whose `port` is active and has RoCE v2 GIDs, the
// first with a routable one; without any, the first with a link-local one; else a loopback. RDMA
// hardware stands first in the list, so it is chosen where it can be used. The error lists what
// there is.
Result<Context> open_device(Provider& provider, const std::string& name, std::uint8_t port = 1);

// Ranked: `wanted` if given; else routable IPv4, routable IPv6, then loopback, link-local last.
// Never a fixed index. Unreadable and all-zero slots are skipped. A `peer` goes first: an
// address of its family, and of its kind (loopback, link-local, routable).
Result<GidChoice> choose_gid(Provider& provider, ibv_context* context, std::uint8_t port,
                             std::optional<int> wanted, const std::optional<Gid>& peer = std::nullopt);

// "RoCE v2", "RoCE v1", "IB"
const char* gid_type_name(std::uint32_t type);

Result<ProtectionDomain> alloc_pd(Provider& provider, ibv_context* context);
Result<MemoryRegion> register_memory(Provider& provider, ibv_pd* pd, void* address, std::size_t bytes,
                                     int access);
Result<CompletionChannel> create_channel(Provider& provider, ibv_context* context);
Result<CompletionQueue> create_cq(Provider& provider, ibv_context* context, int depth,
                                  ibv_comp_channel* channel);

struct QpOptions {
  std::uint32_t send_depth = 128, receive_depth = 128, send_sges = 1, receive_sges = 1, inline_bytes = 0;
};
// An RC queue pair. The depths and inline size granted are in `granted` when given.
Result<QueuePair> create_rc_qp(Provider& provider, ibv_pd* pd, ibv_cq* send_cq, ibv_cq* receive_cq,
                               const QpOptions& options, ibv_qp_cap* granted = nullptr);

// What two ends tell each other (out of band) to connect.
struct QpAddress {
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;  // random
  Gid gid;
  std::uint32_t mtu_bytes = 1024;
  std::uint8_t reads = 1;  // max_dest_rd_atomic: what this end serves at once
};
struct ConnectOptions {
  std::uint8_t port = 1;
  int gid_index = 0;
  std::uint8_t timeout = 14, retry_count = 7, rnr_retry = 7, min_rnr_timer = 12;
  std::uint8_t traffic_class = 0;  // DSCP << 2
  // What this end's device may have outstanding (max_qp_init_rd_atom); 0: as many as it serves.
  std::uint8_t initiator_reads = 0;
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
};
// RESET -> INIT -> RTR -> RTS with the minimum of both MTUs and READ depths.
Result<void> connect_rc(Provider& provider, ibv_qp* qp, const QpAddress& local, const QpAddress& remote,
                        const ConnectOptions& options);

// "remote access error (10): the remote rkey, bounds or access flags forbid it": status in words.
std::string describe(ibv_wc_status status);

}  // namespace beeline::verbs
