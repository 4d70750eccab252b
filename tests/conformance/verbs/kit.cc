#include "kit.h"

#include <arpa/inet.h>
#include <poll.h>

#include <chrono>
#include <cstring>
#include <thread>

namespace conformance {
namespace {

constexpr auto patience = std::chrono::seconds(60);  // emulated machines are slow

struct Step {
  ibv_qp_state to;
  int rc, uc, ud;  // attributes beside the state
};
constexpr int to_init = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int to_rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr Step steps[] = {
    {IBV_QPS_INIT, to_init | IBV_QP_ACCESS_FLAGS, to_init | IBV_QP_ACCESS_FLAGS, to_init | IBV_QP_QKEY},
    {IBV_QPS_RTR, to_rtr | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, to_rtr, 0},
    {IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_SQ_PSN, IBV_QP_SQ_PSN},
};
int mask_of(const Step& step, ibv_qp_type type) {
  return IBV_QP_STATE | (type == IBV_QPT_RC ? step.rc : type == IBV_QPT_UC ? step.uc : step.ud);
}
// Near the wrap-around, where mistakes live.
std::uint32_t first_psn(const ibv_qp& qp) { return 0xFFFFF0 + (qp.qp_num & 7); }

unsigned rights_of(ibv_qp_type type) {
  return type == IBV_QPT_RC ? IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
                            : IBV_ACCESS_REMOTE_WRITE;
}

}  // namespace

Settings& settings() {
  static Settings all;
  return all;
}

Context open_named(const std::string& name) {
  ibv_device** list = ibv_get_device_list(nullptr);
  Context context;
  for (ibv_device** each = list; each != nullptr && *each != nullptr; ++each)
    if (context == nullptr && name == ibv_get_device_name(*each)) context.reset(ibv_open_device(*each));
  if (list != nullptr) ibv_free_device_list(list);
  return context;
}

int End::receive(std::uint64_t wr_id, std::size_t offset, std::size_t bytes) {
  ibv_sge piece = sge(offset, bytes);
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return srq != nullptr ? ibv_post_srq_recv(srq.get(), &wr, &bad) : ibv_post_recv(qp.get(), &wr, &bad);
}

int End::send(ibv_wr_opcode opcode, std::size_t offset, std::size_t bytes,
              const std::function<void(ibv_send_wr&)>& more) {
  ibv_sge piece = sge(offset, bytes);
  ibv_send_wr wr{};
  wr.opcode = opcode;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  if (ah != nullptr) {
    wr.wr.ud.ah = ah.get();
    wr.wr.ud.remote_qpn = peer->qp->qp_num;
    wr.wr.ud.remote_qkey = qkey;
  }
  if (more) more(wr);
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp.get(), &wr, &bad);
}

int End::access(ibv_wr_opcode opcode, std::size_t bytes, std::size_t to, std::uint32_t immediate) {
  return send(opcode, 0, bytes, [&](ibv_send_wr& wr) {
    wr.imm_data = htonl(immediate);
    wr.wr.rdma.remote_addr = peer->address(to);
    wr.wr.rdma.rkey = peer->mr->rkey;
  });
}

int End::atomic(ibv_wr_opcode opcode, std::uint64_t compare_add, std::uint64_t swap) {
  return send(opcode, 0, 8, [&](ibv_send_wr& wr) {
    wr.wr.atomic.remote_addr = peer->address();
    wr.wr.atomic.rkey = peer->mr->rkey;
    wr.wr.atomic.compare_add = compare_add;
    wr.wr.atomic.swap = swap;
  });
}

ibv_wc End::next() {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  ibv_wc wc{};
  int got = 0;
  while ((got = ibv_poll_cq(cq.get(), 1, &wc)) == 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(got, 1) << "no completion";
  if (got != 1) wc.status = IBV_WC_GENERAL_ERR;
  return wc;
}

bool End::has_more() {
  ibv_wc wc{};
  return ibv_poll_cq(cq.get(), 1, &wc) != 0;
}

ibv_qp_state End::state() {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(qp.get(), &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}

void Verbs::SetUp() {
  context_ = open_named(settings().device);
  ASSERT_NE(context_, nullptr) << "no device " << settings().device;
  ASSERT_EQ(ibv_query_device(context_.get(), &attributes_), 0);
  ASSERT_EQ(ibv_query_port(context_.get(), 1, &port_), 0);
  ASSERT_EQ(ibv_query_gid(context_.get(), 1, settings().gid_index, &gid_), 0);
}

End Verbs::make_end(const EndOptions& options) {
  End end;
  end.pd.reset(ibv_alloc_pd(context_.get()));
  EXPECT_NE(end.pd, nullptr);
  end.buffer.resize(64 * 1024);
  end.mr.reset(ibv_reg_mr(end.pd.get(), end.buffer.data(), end.buffer.size(), options.access));
  EXPECT_NE(end.mr, nullptr);
  end.channel.reset(ibv_create_comp_channel(context_.get()));
  end.cq.reset(options.make_cq
                   ? options.make_cq(context_.get())
                   : ibv_create_cq(context_.get(), options.cq_depth, nullptr, end.channel.get(), 0));
  EXPECT_NE(end.cq, nullptr);
  ibv_qp_init_attr_ex attr{};
  if (options.shared_queue) {
    ibv_srq_init_attr shared{};
    shared.attr = {options.cap.max_recv_wr, options.cap.max_recv_sge, 0};
    end.srq.reset(ibv_create_srq(end.pd.get(), &shared));
    EXPECT_NE(end.srq, nullptr);
  }
  attr.send_cq = attr.recv_cq = end.cq.get();
  attr.srq = end.srq.get();
  attr.cap = options.cap;
  attr.qp_type = options.type;
  attr.pd = end.pd.get();
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  if (options.send_operations != 0) attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.send_ops_flags = options.send_operations;
  end.qp.reset(ibv_create_qp_ex(context_.get(), &attr));
  EXPECT_NE(end.qp, nullptr) << std::strerror(errno);
  return end;
}

ibv_ah_attr Verbs::own_address() const {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = gid_;
  attr.grh.sgid_index = static_cast<std::uint8_t>(settings().gid_index);
  attr.grh.hop_limit = 64;
  return attr;
}

void Verbs::connect(End& from, End& to) {
  for (End* end : {&from, &to}) {
    End& other = end == &from ? to : from;
    end->peer = &other;
    ibv_qp_attr attr{};
    attr.port_num = 1;
    attr.qkey = qkey;
    attr.qp_access_flags = rights_of(end->qp->qp_type);
    attr.ah_attr = own_address();
    attr.path_mtu = port_.active_mtu;
    attr.dest_qp_num = other.qp->qp_num;
    attr.rq_psn = first_psn(*other.qp);
    attr.sq_psn = first_psn(*end->qp);
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
    attr.min_rnr_timer = 12;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    for (const Step& step : steps) {
      attr.qp_state = step.to;
      ASSERT_EQ(ibv_modify_qp(end->qp.get(), &attr, mask_of(step, end->qp->qp_type)), 0) << "to " << step.to;
    }
    if (end->qp->qp_type == IBV_QPT_UD) {
      end->ah.reset(ibv_create_ah(end->pd.get(), &attr.ah_attr));
      ASSERT_NE(end->ah, nullptr);
    }
  }
}

void Verbs::pair_of(ibv_qp_type type, EndOptions options) {
  options.type = type;
  for (End* end : {&a, &b}) {
    const End before = std::move(*end);  // gives its objects up in the order that works
  }
  a = make_end(options);
  b = make_end(options);
  ASSERT_NO_FATAL_FAILURE(connect(a, b));
  for (std::size_t i = 0; i < a.buffer.size(); ++i) a.buffer[i] = static_cast<std::byte>(i * 7 + i / 256);
}

bool same(const End& a, std::size_t a_offset, const End& b, std::size_t b_offset, std::size_t bytes) {
  return std::memcmp(a.buffer.data() + a_offset, b.buffer.data() + b_offset, bytes) == 0;
}

bool readable(int fd, int timeout_ms) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, timeout_ms) == 1;
}

}  // namespace conformance
