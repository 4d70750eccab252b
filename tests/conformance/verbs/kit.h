// What a program may rely on, on any device: stock libibverbs, no header of Beeline. The same suite runs on
// the card under `beeline run` and on the kernel's rdma_rxe. What a device does not have it says in its
// attributes, and then it has to refuse.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace conformance {

struct Settings {
  std::string device = "bee0";
  int gid_index = 0;
};
Settings& settings();  // of the command line

// What an object must be freed with, and that this succeeds.
template <class T, int (*destroy)(T*)>
struct Destroyer {
  void operator()(T* object) const { EXPECT_EQ(destroy(object), 0); }
};
using Context = std::unique_ptr<ibv_context, Destroyer<ibv_context, ibv_close_device>>;
using Domain = std::unique_ptr<ibv_pd, Destroyer<ibv_pd, ibv_dealloc_pd>>;
using Region = std::unique_ptr<ibv_mr, Destroyer<ibv_mr, ibv_dereg_mr>>;
using Channel = std::unique_ptr<ibv_comp_channel, Destroyer<ibv_comp_channel, ibv_destroy_comp_channel>>;
using Queue = std::unique_ptr<ibv_cq, Destroyer<ibv_cq, ibv_destroy_cq>>;
using SharedQueue = std::unique_ptr<ibv_srq, Destroyer<ibv_srq, ibv_destroy_srq>>;
using QueuePair = std::unique_ptr<ibv_qp, Destroyer<ibv_qp, ibv_destroy_qp>>;
using Address = std::unique_ptr<ibv_ah, Destroyer<ibv_ah, ibv_destroy_ah>>;

Context open_named(const std::string& name);  // null if there is none

constexpr std::uint32_t qkey = 0x1234567;
constexpr std::size_t grh_bytes = 40;
constexpr int every_right =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// One queue pair with a domain, a registered buffer and a completion queue of its own. What stands last goes
// first.
struct End {
  Domain pd;
  std::vector<std::byte> buffer;
  Region mr;
  Address ah;  // to the peer, of datagrams
  Channel channel;
  Queue cq;
  SharedQueue srq;
  QueuePair qp;
  const End* peer = nullptr;

  std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uint64_t>(buffer.data()) + offset;
  }
  std::uint64_t& word(std::size_t offset = 0) {
    return *reinterpret_cast<std::uint64_t*>(buffer.data() + offset);
  }
  ibv_sge sge(std::size_t offset, std::size_t bytes) const {
    return {address(offset), static_cast<std::uint32_t>(bytes), mr->lkey};
  }
  int receive(std::uint64_t wr_id, std::size_t offset, std::size_t bytes);
  // One request with one piece; `more` completes it. Datagrams go to the peer.
  int send(ibv_wr_opcode opcode, std::size_t offset, std::size_t bytes,
           const std::function<void(ibv_send_wr&)>& more = {});
  // One that reads or writes the peer's memory, or an atomic on its first word.
  int access(ibv_wr_opcode opcode, std::size_t bytes, std::size_t to = 0, std::uint32_t immediate = 0);
  int atomic(ibv_wr_opcode opcode, std::uint64_t compare_add, std::uint64_t swap = 0);
  ibv_wc next();  // waits long, and fails the test in vain
  bool has_more();
  ibv_qp_state state();
};

struct EndOptions {
  ibv_qp_type type = IBV_QPT_RC;
  int access = every_right;
  ibv_qp_cap cap = {32, 32, 2, 2, 32};
  int cq_depth = 128;
  bool shared_queue = false;
  std::function<ibv_cq*(ibv_context*)> make_cq = {};
  std::uint64_t send_operations = 0;  // of enum ibv_qp_create_send_ops_flags
};

class Verbs : public testing::Test {
 protected:
  void SetUp() override;
  End make_end(const EndOptions& options = {});
  void connect(End& a, End& b);
  // a and b, connected; a's bytes tell their place.
  void pair_of(ibv_qp_type type, EndOptions options = {});
  ibv_ah_attr own_address() const;
  std::size_t mtu_bytes() const { return std::size_t{128} << port_.active_mtu; }

  Context context_;
  ibv_device_attr attributes_{};
  ibv_port_attr port_{};
  ibv_gid gid_{};
  End a, b;
};

bool same(const End& a, std::size_t a_offset, const End& b, std::size_t b_offset, std::size_t bytes);
// A descriptor becomes readable; long waited for.
bool readable(int fd, int timeout_ms = 60000);

}  // namespace conformance
