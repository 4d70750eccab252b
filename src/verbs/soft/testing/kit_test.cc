// The tools of these tests.
#include "verbs/soft/testing/kit.h"

#include <chrono>
#include <thread>

#include "base/config.h"
#include "nic/card.h"
#include "port/udp/udp_port.h"
#include "verbs/common/device_shell.h"

namespace beeline::verbs::soft {

struct SoftVerbs::Card {
  std::unique_ptr<nic::Card> card;
};

SoftVerbs::SoftVerbs() = default;
SoftVerbs::~SoftVerbs() = default;

void SoftVerbs::SetUp() {
  Config config;
  config.lane = Lane::wire;
  const auto interfaces = port::list_interfaces();
  ASSERT_TRUE(interfaces) << interfaces.error().message;
  auto port = port::make_udp_port();
  ASSERT_TRUE(port) << port.error().message;
  auto card = nic::Card::create(config, std::move(*port), *interfaces);
  ASSERT_TRUE(card) << card.error().message;
  card_ = std::make_unique<Card>();
  card_->card = std::move(*card);
  provider_ = make_full_soft_provider(*card_->card);

  auto opened = open_device(*provider_, "");
  ASSERT_TRUE(opened) << opened.error().message;
  context_ = opened->release();
  const auto choice = choose_gid(*provider_, context_, 1, std::nullopt);
  ASSERT_TRUE(choice) << choice.error().message;
  gid_index_ = choice->index;
  gid_ = from_gid(choice->gid);
  ibv_port_attr attributes{};
  ASSERT_EQ(provider_->query_port(context_, 1, &attributes), 0);
  mtu_ = attributes.active_mtu;
}

void SoftVerbs::TearDown() {
  a_.reset();
  b_.reset();
  if (context_ != nullptr) {
    EXPECT_EQ(provider_->close_device(context_), 0) << "a test left objects behind";
  }
  provider_.reset();
  card_.reset();
}

End::~End() {
  if (provider == nullptr) return;
  if (qp != nullptr) {
    EXPECT_EQ(provider->destroy_qp(qp), 0);
  }
  if (srq != nullptr) {
    EXPECT_EQ(provider->destroy_srq(srq), 0);
  }
  if (cq != nullptr) {
    EXPECT_EQ(provider->destroy_cq(cq), 0);
  }
  if (mr != nullptr) {
    EXPECT_EQ(provider->dereg_mr(mr), 0);
  }
  if (ah != nullptr) {
    EXPECT_EQ(provider->destroy_ah(ah), 0);
  }
  if (pd != nullptr) {
    EXPECT_EQ(provider->dealloc_pd(pd), 0);
  }
}

int End::post_receive(std::uint64_t wr_id, std::size_t offset, std::size_t bytes) {
  ibv_sge piece = sge(offset, bytes);
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return srq != nullptr ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad);
}

std::vector<ibv_wc> End::wait(std::size_t count) {
  std::vector<ibv_wc> taken;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (taken.size() < count && std::chrono::steady_clock::now() < deadline) {
    ibv_wc wc{};
    const int got = ibv_poll_cq(cq, 1, &wc);
    EXPECT_GE(got, 0);
    if (got < 0) break;
    if (got == 1)
      taken.push_back(wc);
    else
      std::this_thread::yield();
  }
  EXPECT_EQ(taken.size(), count) << "completions missing after 20 s";
  ibv_wc none{};
  none.status = IBV_WC_GENERAL_ERR;
  taken.resize(count, none);
  return taken;
}

ibv_qp_state End::state() {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(provider->query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}

std::unique_ptr<End> SoftVerbs::make_end(const EndOptions& options) {
  auto end = std::make_unique<End>();
  end->provider = provider_.get();
  end->context = context_;
  end->pd = provider_->alloc_pd(context_);
  end->cq = options.make_cq ? options.make_cq(context_)
                            : provider_->create_cq(context_, options.cq_depth, nullptr, nullptr, 0);
  end->buffer.resize(options.buffer_bytes);
  end->mr = provider_->reg_mr(end->pd, end->buffer.data(), end->buffer.size(), options.access);
  EXPECT_NE(end->cq, nullptr);
  EXPECT_NE(end->mr, nullptr);
  ibv_qp_init_attr_ex attr{};
  if (options.shared_queue) {
    ibv_srq_init_attr shared{};
    shared.attr.max_wr = options.cap.max_recv_wr;
    shared.attr.max_sge = options.cap.max_recv_sge;
    end->srq = attr.srq = provider_->create_srq(end->pd, &shared);
    EXPECT_NE(end->srq, nullptr) << provider_->why();
  }
  attr.send_cq = attr.recv_cq = end->cq;
  attr.cap = options.cap;
  attr.qp_type = options.type;
  attr.sq_sig_all = options.signal_all ? 1 : 0;
  attr.pd = end->pd;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  if (options.send_operations != 0) attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.send_ops_flags = options.send_operations;
  end->qp = verbs_get_ctx(context_)->create_qp_ex(context_, &attr);
  EXPECT_NE(end->qp, nullptr) << provider_->why();
  return end;
}

void SoftVerbs::pair_of(ibv_qp_type type, const EndOptions& wanted, const ConnectOptions& connection) {
  EndOptions options = wanted;
  options.type = type;
  a_ = make_end(options);
  b_ = make_end(options);
  connect(*a_, *b_, connection);
  // Bytes that tell their place.
  for (std::size_t i = 0; i < a_->buffer.size(); ++i) a_->buffer[i] = static_cast<std::byte>(i * 7 + i / 256);
}

ibv_ah_attr SoftVerbs::address_of_this_host() const {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = gid_;
  attr.grh.sgid_index = static_cast<std::uint8_t>(gid_index_);
  attr.grh.hop_limit = 64;
  return attr;
}

namespace {
struct Step {
  ibv_qp_state to;
  int rc, uc, ud;  // attributes beside the state
};
constexpr int uc_to_rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr Step steps[] = {
    {IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
     IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
    {IBV_QPS_RTR, uc_to_rtr | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, uc_to_rtr, 0},
    {IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_SQ_PSN, IBV_QP_SQ_PSN},
};
// Near the wrap-around, where mistakes live.
std::uint32_t first_psn(const ibv_qp& qp) { return 0xFFFFF0 + (qp.qp_num & 7); }
}  // namespace

void SoftVerbs::advance(End& end, const End& peer, ibv_qp_state until, const ConnectOptions& options) {
  for (const Step& step : steps) {
    if (step.to > until) return;
    ibv_qp_attr attr{};
    attr.qp_state = step.to;
    attr.port_num = 1;
    attr.qkey = qkey;
    attr.qp_access_flags = options.access;
    attr.ah_attr = address_of_this_host();
    attr.path_mtu = mtu_;
    attr.dest_qp_num = peer.qp->qp_num;
    attr.rq_psn = first_psn(*peer.qp);
    attr.sq_psn = first_psn(*end.qp);
    attr.max_dest_rd_atomic = attr.max_rd_atomic = options.max_rd_atomic;
    attr.min_rnr_timer = options.min_rnr_timer;
    attr.timeout = options.timeout;
    attr.retry_cnt = options.retry_count;
    attr.rnr_retry = options.rnr_retry;
    const auto type = end.qp->qp_type;
    const int mask = type == IBV_QPT_RC ? step.rc : type == IBV_QPT_UC ? step.uc : step.ud;
    ASSERT_EQ(provider_->modify_qp(end.qp, &attr, mask | IBV_QP_STATE), 0) << provider_->why();
  }
}

void SoftVerbs::connect(End& a, End& b, const ConnectOptions& options) {
  advance(a, b, IBV_QPS_RTS, options);
  if (&a != &b) advance(b, a, IBV_QPS_RTS, options);
  a.peer = &b;
  b.peer = &a;
  for (End* end : {&a, &b})
    if (end->qp->qp_type == IBV_QPT_UD && end->ah == nullptr) {
      ibv_ah_attr attr = address_of_this_host();
      end->ah = provider_->create_ah(end->pd, &attr);
      ASSERT_NE(end->ah, nullptr) << provider_->why();
    }
}

Request::Request(ibv_wr_opcode opcode, const End& from, std::size_t offset, std::size_t bytes)
    : sge(from.sge(offset, bytes)) {
  wr.opcode = opcode;
  wr.sg_list = &sge;
  wr.num_sge = 1;
}

Request& Request::to(const End& target, std::size_t offset) {
  wr.wr.rdma.remote_addr = target.address(offset);
  wr.wr.rdma.rkey = target.mr->rkey;
  return *this;
}

Request& Request::atomic(const End& target, std::uint64_t compare_add, std::uint64_t swap) {
  wr.wr.atomic.remote_addr = target.address();
  wr.wr.atomic.compare_add = compare_add;
  wr.wr.atomic.swap = swap;
  wr.wr.atomic.rkey = target.mr->rkey;
  return *this;
}

int Request::post(End& end) {
  if (end.qp->qp_type == IBV_QPT_UD) {
    wr.wr.ud.ah = end.ah;
    if (wr.wr.ud.remote_qpn == 0) wr.wr.ud.remote_qpn = end.peer->qp->qp_num;
    if (wr.wr.ud.remote_qkey == 0) wr.wr.ud.remote_qkey = qkey;
  }
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(end.qp, &wr, &bad);
}

}  // namespace beeline::verbs::soft
