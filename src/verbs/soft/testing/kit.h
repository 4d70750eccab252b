// What tests of the software card's verbs stand on: a card over real sockets, and ends of connections of
// every type, through the functions that a program calls.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "verbs/full_provider.h"
#include "verbs/verbs.h"

namespace beeline::verbs::soft {

// One queue pair with a domain, a completion queue and a registered buffer of its own.
struct End {
  FullProvider* provider = nullptr;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  ibv_ah* ah = nullptr;  // to the peer, of datagrams
  std::vector<std::byte> buffer;
  const End* peer = nullptr;

  End() = default;
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End();  // destroys what is left

  std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uint64_t>(buffer.data()) + offset;
  }
  ibv_sge sge(std::size_t offset, std::size_t bytes) const {
    return {address(offset), static_cast<std::uint32_t>(bytes), mr->lkey};
  }
  std::uint64_t& word(std::size_t offset = 0) {
    return *reinterpret_cast<std::uint64_t*>(buffer.data() + offset);
  }
  int post_receive(std::uint64_t wr_id, std::size_t offset, std::size_t bytes);
  // Waits (at most 20 s) for `count` completions; fewer only when time is up.
  std::vector<ibv_wc> wait(std::size_t count = 1);
  ibv_qp_state state();
};

struct EndOptions {
  ibv_qp_type type = IBV_QPT_RC;
  std::size_t buffer_bytes = std::size_t{64} * 1024;
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
               IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
  ibv_qp_cap cap = {64, 64, 4, 4, 128};
  int cq_depth = 256;
  bool signal_all = true;
  bool shared_queue = false;
  std::uint64_t send_operations = 0;                  // of enum ibv_qp_create_send_ops_flags
  std::function<ibv_cq*(ibv_context*)> make_cq = {};  // instead of a plain one
};

struct ConnectOptions {
  unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  std::uint8_t timeout = 14, retry_count = 7, rnr_retry = 7, min_rnr_timer = 12;
  std::uint8_t max_rd_atomic = 4;
};

inline constexpr std::uint32_t qkey = 0x1234567;
inline constexpr std::size_t grh_bytes = 40;

class SoftVerbs : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  FullProvider& provider() { return *provider_; }
  ibv_context* context() { return context_; }
  std::unique_ptr<End> make_end(const EndOptions& options = {});
  // To RTS, or as far as `until`.
  void connect(End& a, End& b, const ConnectOptions& options = {});
  void advance(End& end, const End& peer, ibv_qp_state until, const ConnectOptions& options = {});
  // a_ and b_, connected.
  void pair_of(ibv_qp_type type, const EndOptions& wanted = {}, const ConnectOptions& connection = {});
  ibv_ah_attr address_of_this_host() const;

  struct Card;
  std::unique_ptr<Card> card_;
  std::unique_ptr<FullProvider> provider_;
  ibv_context* context_ = nullptr;
  int gid_index_ = 0;
  ibv_gid gid_{};
  ibv_mtu mtu_{};
  std::unique_ptr<End> a_, b_;

 public:
  SoftVerbs();
  ~SoftVerbs() override;
};

// A send request with one piece.
struct Request {
  ibv_sge sge{};
  ibv_send_wr wr{};

  Request(ibv_wr_opcode opcode, const End& from, std::size_t offset, std::size_t bytes);
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  Request& to(const End& target, std::size_t offset = 0);  // remote address and key
  Request& atomic(const End& target, std::uint64_t compare_add, std::uint64_t swap = 0);
  Request& flags(unsigned more) {
    wr.send_flags |= more;
    return *this;
  }
  Request& id(std::uint64_t wr_id) {
    wr.wr_id = wr_id;
    return *this;
  }
  int post(End& end);  // datagrams go to its peer
};

}  // namespace beeline::verbs::soft
