// One end's verbs objects: device, memory, completion queue, queue pairs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "perf/message.h"
#include "perf/options.h"
#include "verbs/own_address.h"
#include "verbs/verbs.h"

namespace beeline::perf {

// The device, opened before anybody waits for a peer.
struct OpenDevice {
  verbs::Provider* provider = nullptr;
  verbs::Context context;
  std::string name;
  verbs::GidChoice gid;
  bool gid_given = false;  // by the user
  std::uint8_t port = 1;
  std::uint32_t mtu_bytes = 0;        // active, or what the user limited it to
  std::uint32_t reads = 1;            // that it serves at once, per queue pair
  std::uint32_t initiator_reads = 1;  // that it may have outstanding
  bool ethernet = true;
  int max_cqe = 0;
  std::uint32_t max_depth = 0;
};
Result<OpenDevice> open_device(verbs::Provider& provider, const Options& options);

// Page-aligned zeroed memory.
class Buffer {
 public:
  static Result<Buffer> allocate(std::size_t bytes);
  std::byte* data() const { return bytes_.get(); }
  std::size_t size() const { return bytes_.get_deleter().bytes; }

 private:
  struct Unmap {
    std::size_t bytes = 0;
    void operator()(std::byte* memory) const;
  };
  explicit Buffer(std::byte* memory, std::size_t bytes) : bytes_(memory, Unmap{bytes}) {}
  std::unique_ptr<std::byte, Unmap> bytes_;
};

struct Lane {
  verbs::QueuePair qp;
  std::byte* source = nullptr;  // what this end sends from, or lets the peer read
  std::byte* sink = nullptr;    // where this end receives
  std::uint32_t psn = 0;
  std::uint32_t receives_outstanding = 0;  // some may stay posted from one round to the next
  PeerQueuePair peer;
};

class Endpoint {
 public:
  static Result<std::unique_ptr<Endpoint>> create(OpenDevice& device, const Plan& plan);

  // Takes a GID that can reach the peer's, where the user gave none.
  void match(const EndpointInfo& peer);
  // What the peer must know; connecting takes what the peer told.
  EndpointInfo info() const;
  Result<void> connect(const EndpointInfo& peer);
  bool data_in_order() const;

  const Plan& plan() const { return plan_; }
  const OpenDevice& device() const { return device_; }
  const EndpointInfo& peer() const { return peer_; }
  std::uint32_t mtu_bytes() const { return mtu_bytes_; }
  std::vector<Lane>& lanes() { return lanes_; }
  const std::vector<Lane>& lanes() const { return lanes_; }
  ibv_cq* cq() const { return cq_.get(); }
  std::uint32_t lkey() const { return region_->lkey; }
  std::uint32_t inline_bytes() const { return inline_bytes_; }
  std::uint32_t receive_depth() const { return receive_depth_; }

  // "RDMA WRITE on queue pair 0 (10.0.0.1 QPN 0x11 -> 10.0.0.2 QPN 0x12) failed: …", and whether our own
  // address has been taken away since connect().
  Error failed(std::size_t lane, std::string_view operation, ibv_wc_status status) const;

 private:
  Endpoint(OpenDevice& device, const Plan& plan, Buffer buffer)
      : device_(device), plan_(plan), buffer_(std::move(buffer)) {}
  Result<void> create_lanes();

  OpenDevice& device_;
  const Plan plan_;
  Buffer buffer_;
  verbs::ProtectionDomain pd_;
  verbs::MemoryRegion region_;
  verbs::CompletionQueue cq_;
  std::vector<Lane> lanes_;
  EndpointInfo peer_;
  std::optional<verbs::OwnAddress> own_address_;  // once it is chosen
  std::uint32_t mtu_bytes_ = 0;
  std::uint32_t inline_bytes_ = 0;
  std::uint32_t receive_depth_ = 0;
};

}  // namespace beeline::perf
