// A second provider, for tests: an RC fabric inside one process, without a card. Queue
// pairs of one FakeProvider reach each other by number; data moves by copying memory.
// It follows the rules that hardware has and a lenient simulation would forget: send
// queue slots are freed by polled completions only, keys and bounds are checked, a
// failed queue pair flushes, and a peer that is not ready yet is waited for.
//
// Threads may play ranks: every function is thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/address.h"
#include "verbs/provider.h"

namespace beeline::verbs {

struct FakeDevice {
  std::string name = "fake0";
  bool active = true;
  std::uint32_t active_mtu_bytes = 4096;
  // All-zero ones are empty slots of the table.
  std::vector<Gid> gids = {Gid::v4(10, 99, 0, 1)};
  int netdev_index = 1;
  std::uint32_t gid_type = IBV_GID_TYPE_ROCE_V2;
  std::uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  std::uint8_t active_width = 1, active_speed = 1;
};

struct FakeOptions {
  std::vector<FakeDevice> devices = {FakeDevice{}};
  // immediate: an operation is executed by the call that makes it possible.
  // threaded: by a thread of the provider, in the order of posting.
  enum class Delivery : std::uint8_t { immediate, threaded } delivery = Delivery::immediate;
  std::uint32_t max_inline_bytes = 256;  // more is refused; what is asked for is granted
  bool data_in_order = true;             // the answer of query_qp_data_in_order
  int max_reads = 16;                    // max_qp_rd_atom
  int max_cqe = 1 << 20;                 // entries of a completion queue
};

struct FakeQueuePair {
  ibv_context* context = nullptr;
  std::uint32_t qpn = 0;
  std::uint32_t peer_qpn = 0;  // 0 before RTR
  ibv_qp_state state = IBV_QPS_RESET;
};

class FakeProvider : public Provider {
 public:
  // For tests that break things.
  virtual std::vector<FakeQueuePair> queue_pairs() const = 0;
  // The queue pair goes to ERR and flushes, as after a fatal error of its own.
  virtual void kill(std::uint32_t qpn) = 0;
  // Its next send work request completes with `status` instead of being executed; then ERR.
  virtual void fail_next(std::uint32_t qpn, ibv_wc_status status) = 0;
  // One bit of the next message that it sends or reads is flipped, and nobody is told.
  virtual void corrupt_next(std::uint32_t qpn) = 0;
  // An unreachable queue pair neither sends nor receives: requests fail with retry exceeded.
  virtual void set_reachable(std::uint32_t qpn, bool reachable) = 0;
  // While paused nothing is executed: a fabric that is late.
  virtual void set_paused(bool paused) = 0;
};

std::unique_ptr<FakeProvider> make_fake_provider(const FakeOptions& options = {});

}  // namespace beeline::verbs
