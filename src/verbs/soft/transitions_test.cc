// ibv_modify_qp against the rules of every state, type and attribute, one deviation at a time. The expected
// masks are written down once more, from the verbs' specification (IBTA vol. 1, tables 91 to 95) as Linux
// applies it; ibv_modify_qp(3) lists the required ones.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "verbs/soft/testing/kit.h"

namespace beeline::verbs::soft {
namespace {

struct Masks {
  int required = 0;
  int optional = 0;
};
struct Rule {
  ibv_qp_state from, to;
  Masks rc, uc, ud;
};
constexpr int init_connected = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int init_datagram = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
constexpr int rtr_uc = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int rtr_rc = rtr_uc | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int rtr_more = IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
constexpr int rts_rc =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int rts_more_uc = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS;
constexpr int rts_more_rc = rts_more_uc | IBV_QP_MIN_RNR_TIMER;
constexpr int rts_more_ud = IBV_QP_CUR_STATE | IBV_QP_QKEY;
constexpr int sqd_uc = IBV_QP_AV | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
constexpr int sqd_rc = sqd_uc | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                       IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr Masks to_sqd{0, IBV_QP_EN_SQD_ASYNC_NOTIFY};

constexpr Rule rules[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, {init_connected, 0}, {init_connected, 0}, {init_datagram, 0}},
    {IBV_QPS_INIT, IBV_QPS_INIT, {0, init_connected}, {0, init_connected}, {0, init_datagram}},
    {IBV_QPS_INIT, IBV_QPS_RTR, {rtr_rc, rtr_more}, {rtr_uc, rtr_more}, {0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
    {IBV_QPS_RTR,
     IBV_QPS_RTS,
     {rts_rc, rts_more_rc},
     {IBV_QP_SQ_PSN, rts_more_uc},
     {IBV_QP_SQ_PSN, rts_more_ud}},
    {IBV_QPS_RTS, IBV_QPS_RTS, {0, rts_more_rc}, {0, rts_more_uc}, {0, rts_more_ud}},
    {IBV_QPS_RTS, IBV_QPS_SQD, to_sqd, to_sqd, to_sqd},
    {IBV_QPS_SQD, IBV_QPS_SQD, {0, sqd_rc}, {0, sqd_uc}, {0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
    {IBV_QPS_SQD, IBV_QPS_RTS, {0, rts_more_rc}, {0, rts_more_uc}, {0, rts_more_ud}},
    {IBV_QPS_SQE, IBV_QPS_RTS, {}, {0, rts_more_uc}, {0, rts_more_ud}},  // RC goes to ERR instead
};

struct Expected {
  bool possible = false;
  Masks masks;
};
Expected expected(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
  for (const Rule& rule : rules)
    if (rule.from == from && rule.to == to)
      return {true, type == IBV_QPT_RC ? rule.rc : type == IBV_QPT_UC ? rule.uc : rule.ud};
  // Everything may be reset, and all but a fresh queue pair may be given up.
  return {to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET), {}};
}

constexpr int every_attribute[] = {IBV_QP_CUR_STATE,
                                   IBV_QP_EN_SQD_ASYNC_NOTIFY,
                                   IBV_QP_ACCESS_FLAGS,
                                   IBV_QP_PKEY_INDEX,
                                   IBV_QP_PORT,
                                   IBV_QP_QKEY,
                                   IBV_QP_AV,
                                   IBV_QP_PATH_MTU,
                                   IBV_QP_TIMEOUT,
                                   IBV_QP_RETRY_CNT,
                                   IBV_QP_RNR_RETRY,
                                   IBV_QP_RQ_PSN,
                                   IBV_QP_MAX_QP_RD_ATOMIC,
                                   IBV_QP_MIN_RNR_TIMER,
                                   IBV_QP_SQ_PSN,
                                   IBV_QP_MAX_DEST_RD_ATOMIC,
                                   IBV_QP_DEST_QPN};
constexpr ibv_qp_state states[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                   IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};
// No request leads to SQE, an error does; and RC has none (IBTA vol. 1, 10.3.1.6).
bool is_reached(ibv_qp_type type, ibv_qp_state state) { return state != IBV_QPS_SQE || type != IBV_QPT_RC; }

class Transitions : public SoftVerbs, public testing::WithParamInterface<ibv_qp_type> {
 protected:
  std::unique_ptr<End> in_state(ibv_qp_state state) {
    EndOptions options;
    options.type = GetParam();
    options.buffer_bytes = 64;
    options.cap = {1, 1, 1, 1, 0};
    options.cq_depth = 4;
    auto end = make_end(options);
    if (state == IBV_QPS_SQE)
      stumble(*end);
    else
      advance(*end, *end, state == IBV_QPS_ERR ? IBV_QPS_INIT : std::min(state, IBV_QPS_RTS));
    ibv_qp_attr attr{};
    attr.qp_state = state;
    if (state == IBV_QPS_SQD || state == IBV_QPS_ERR) {
      EXPECT_EQ(provider().modify_qp(end->qp, &attr, IBV_QP_STATE), 0);
    }
    EXPECT_EQ(end->state(), state);
    return end;
  }

  // An error of an unreliable queue pair's own request.
  void stumble(End& end) {
    connect(end, end);
    Request bad(IBV_WR_SEND, end, 0, 8);
    bad.sge.lkey ^= 0xFF00;
    EXPECT_EQ(bad.post(end), 0);
    EXPECT_EQ(end.wait()[0].status, IBV_WC_LOC_PROT_ERR);
  }

  // Values that every device takes.
  ibv_qp_attr sane(const End& end, ibv_qp_state from, ibv_qp_state to) const {
    ibv_qp_attr attr{};
    attr.qp_state = to;
    attr.cur_qp_state = from;
    attr.port_num = 1;
    attr.qkey = qkey;
    attr.ah_attr = address_of_this_host();
    attr.path_mtu = IBV_MTU_256;
    attr.dest_qp_num = end.qp->qp_num;
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.min_rnr_timer = 12;
    return attr;
  }

  // What modifying answers, and that a refusal changes nothing.
  int attempt(ibv_qp_state from, ibv_qp_state to, int mask) {
    auto end = in_state(from);
    ibv_qp_attr attr = sane(*end, from, to);
    const int error = provider().modify_qp(end->qp, &attr, mask | IBV_QP_STATE);
    EXPECT_EQ(end->state(), error == 0 ? to : from);
    EXPECT_EQ(end->qp->state, error == 0 ? to : from);
    return error;
  }
};

TEST_P(Transitions, FollowTheTableAttributeByAttribute) {
  for (const ibv_qp_state from : states)
    for (const ibv_qp_state to : states) {
      if (!is_reached(GetParam(), from)) continue;
      SCOPED_TRACE(testing::Message() << "from " << from << " to " << to);
      const Expected rule = expected(GetParam(), from, to);
      EXPECT_EQ(attempt(from, to, rule.masks.required), rule.possible ? 0 : EINVAL);
      EXPECT_EQ(attempt(from, to, rule.masks.required | rule.masks.optional), rule.possible ? 0 : EINVAL);
      if (!rule.possible) continue;
      for (const int attribute : every_attribute) {
        SCOPED_TRACE(testing::Message() << "attribute " << attribute);
        if ((rule.masks.required & attribute) != 0)
          EXPECT_EQ(attempt(from, to, rule.masks.required & ~attribute), EINVAL) << "without it";
        else
          EXPECT_EQ(attempt(from, to, rule.masks.required | attribute),
                    (rule.masks.optional & attribute) != 0 ? 0 : EINVAL)
              << "with it";
      }
    }
}

TEST_P(Transitions, WhatTheCardHasNotIsUnsupported) {
  for (const int attribute :
       {int{IBV_QP_CAP}, int{IBV_QP_ALT_PATH}, int{IBV_QP_PATH_MIG_STATE}, int{IBV_QP_RATE_LIMIT}})
    EXPECT_EQ(attempt(IBV_QPS_INIT, IBV_QPS_INIT, attribute), EOPNOTSUPP) << attribute;
}

TEST_P(Transitions, UnknownStatesAreInvalid) {
  auto end = in_state(IBV_QPS_INIT);
  ibv_qp_attr attr = sane(*end, IBV_QPS_INIT, IBV_QPS_UNKNOWN);
  EXPECT_EQ(provider().modify_qp(end->qp, &attr, IBV_QP_STATE), EINVAL);
  attr = sane(*end, IBV_QPS_UNKNOWN, IBV_QPS_INIT);
  EXPECT_EQ(provider().modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
}

TEST_P(Transitions, AClaimedCurrentStateMustBeTrue) {
  auto end = in_state(IBV_QPS_RTS);
  ibv_qp_attr attr = sane(*end, IBV_QPS_SQE, IBV_QPS_RTS);
  EXPECT_EQ(provider().modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
  attr.cur_qp_state = IBV_QPS_RTS;
  EXPECT_EQ(provider().modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
}

std::string name_of(const testing::TestParamInfo<ibv_qp_type>& info) {
  return info.param == IBV_QPT_RC ? "rc" : info.param == IBV_QPT_UC ? "uc" : "ud";
}
INSTANTIATE_TEST_SUITE_P(Types, Transitions, testing::Values(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD), name_of);

struct BadValue {
  const char* name;
  int mask;
  void (*spoil)(ibv_qp_attr&);
};
constexpr BadValue bad_values[] = {
    {"port", IBV_QP_PORT, [](ibv_qp_attr& attr) { attr.port_num = 2; }},
    {"P_Key index", IBV_QP_PKEY_INDEX, [](ibv_qp_attr& attr) { attr.pkey_index = 1; }},
    {"access", IBV_QP_ACCESS_FLAGS, [](ibv_qp_attr& attr) { attr.qp_access_flags = 1u << 12; }},
};
constexpr BadValue bad_rtr_values[] = {
    {"MTU", 0, [](ibv_qp_attr& attr) { attr.path_mtu = static_cast<ibv_mtu>(6); }},
    {"MTU 0", 0, [](ibv_qp_attr& attr) { attr.path_mtu = static_cast<ibv_mtu>(0); }},
    {"no GRH", 0, [](ibv_qp_attr& attr) { attr.ah_attr.is_global = 0; }},
    {"port of the address", 0, [](ibv_qp_attr& attr) { attr.ah_attr.port_num = 2; }},
    {"GID index", 0, [](ibv_qp_attr& attr) { attr.ah_attr.grh.sgid_index = 200; }},
    {"no destination", 0, [](ibv_qp_attr& attr) { attr.ah_attr.grh.dgid = {}; }},
    {"queue pair number", 0, [](ibv_qp_attr& attr) { attr.dest_qp_num = 0x1000000; }},
    {"depth of READs", 0, [](ibv_qp_attr& attr) { attr.max_dest_rd_atomic = 17; }},
    {"RNR timer", 0, [](ibv_qp_attr& attr) { attr.min_rnr_timer = 32; }},
};

class Values : public SoftVerbs {};

TEST_F(Values, OutOfRangeAreInvalid) {
  auto end = make_end();
  ibv_qp_attr good{};
  good.qp_state = IBV_QPS_INIT;
  good.port_num = 1;
  for (const BadValue& bad : bad_values) {
    ibv_qp_attr attr = good;
    bad.spoil(attr);
    EXPECT_EQ(provider().modify_qp(end->qp, &attr, init_connected | IBV_QP_STATE), EINVAL) << bad.name;
  }
  advance(*end, *end, IBV_QPS_INIT);
  good.qp_state = IBV_QPS_RTR;
  good.ah_attr = address_of_this_host();
  good.path_mtu = IBV_MTU_256;
  good.dest_qp_num = end->qp->qp_num;
  good.max_dest_rd_atomic = 16;
  good.min_rnr_timer = 31;
  for (const BadValue& bad : bad_rtr_values) {
    ibv_qp_attr attr = good;
    bad.spoil(attr);
    EXPECT_EQ(provider().modify_qp(end->qp, &attr, rtr_rc | IBV_QP_STATE), EINVAL) << bad.name;
  }
  EXPECT_EQ(end->state(), IBV_QPS_INIT);
  EXPECT_EQ(provider().modify_qp(end->qp, &good, rtr_rc | IBV_QP_STATE), 0);
}

TEST_F(Values, QueryTellsWhatWasSet) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    SCOPED_TRACE(type);
    EndOptions options;
    options.type = type;
    options.cap = {17, 19, 2, 3, 100};
    auto end = make_end(options);
    advance(*end, *end, IBV_QPS_RTS, {.timeout = 11, .retry_count = 5, .rnr_retry = 4, .min_rnr_timer = 9});
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(provider().query_qp(end->qp, &attr, 0x1FFFFFF, &init), 0);
    EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
    EXPECT_EQ(attr.cur_qp_state, IBV_QPS_RTS);
    EXPECT_EQ(attr.port_num, 1);
    EXPECT_EQ(attr.pkey_index, 0);
    EXPECT_EQ(attr.sq_draining, 0);
    EXPECT_EQ(attr.path_mig_state, IBV_MIG_MIGRATED);
    EXPECT_GE(attr.cap.max_send_wr, 17u);
    EXPECT_GE(attr.cap.max_recv_wr, 19u);
    EXPECT_GE(attr.cap.max_send_sge, 2u);
    EXPECT_GE(attr.cap.max_recv_sge, 3u);
    EXPECT_GE(attr.cap.max_inline_data, 100u);
    EXPECT_EQ(init.qp_type, type);
    EXPECT_EQ(init.send_cq, end->cq);
    EXPECT_EQ(init.recv_cq, end->cq);
    EXPECT_EQ(init.srq, nullptr);
    EXPECT_EQ(init.sq_sig_all, 1);
    EXPECT_EQ(attr.sq_psn, 0xFFFFF0 + (end->qp->qp_num & 7));
    if (type == IBV_QPT_UD) {
      EXPECT_EQ(attr.qkey, qkey);
      continue;
    }
    EXPECT_EQ(attr.dest_qp_num, end->qp->qp_num);
    EXPECT_EQ(attr.ah_attr.is_global, 1);
    EXPECT_EQ(attr.ah_attr.port_num, 1);
    EXPECT_EQ(std::memcmp(&attr.ah_attr.grh.dgid, &gid_, sizeof gid_), 0);
    EXPECT_EQ(attr.path_mtu, mtu_);
    EXPECT_EQ(attr.qp_access_flags, ConnectOptions{}.access);
    if (type == IBV_QPT_UC) continue;
    EXPECT_EQ(attr.timeout, 11);
    EXPECT_EQ(attr.retry_cnt, 5);
    EXPECT_EQ(attr.rnr_retry, 4);
    EXPECT_EQ(attr.min_rnr_timer, 9);
    EXPECT_EQ(attr.max_rd_atomic, 4);
    EXPECT_EQ(attr.max_dest_rd_atomic, 4);
  }
}

// As pyverbs does: what a query returned brings a queue pair back to where it was.
TEST_F(Values, WhatAQueryReturnsIsGoodForModify) {
  auto a = make_end(), b = make_end();
  connect(*a, *b);
  constexpr int to_rtr = rtr_rc | IBV_QP_STATE, to_rts = rts_rc | IBV_QP_STATE;
  ibv_qp_attr queried[2]{};
  End* ends[] = {a.get(), b.get()};
  ibv_qp_init_attr init{};
  for (int i = 0; i < 2; ++i) ASSERT_EQ(provider().query_qp(ends[i]->qp, &queried[i], 0x1FFFFFF, &init), 0);
  for (int i = 0; i < 2; ++i) {
    ibv_qp_attr reset{};
    ASSERT_EQ(provider().modify_qp(ends[i]->qp, &reset, IBV_QP_STATE), 0);
    const ibv_qp_state stations[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
    const int masks[] = {init_connected | IBV_QP_STATE, to_rtr, to_rts};
    for (int step = 0; step < 3; ++step) {
      ibv_qp_attr attr = queried[i];
      attr.qp_state = stations[step];
      ASSERT_EQ(provider().modify_qp(ends[i]->qp, &attr, masks[step]), 0);
    }
  }
  ASSERT_EQ(b->post_receive(1, 0, 64), 0);
  ASSERT_EQ(Request(IBV_WR_SEND, *a, 0, 64).post(*a), 0);
  EXPECT_EQ(a->wait()[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(b->wait()[0].status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace beeline::verbs::soft
