#include "proto/ops/qp_state.h"

#include <gtest/gtest.h>

#include <map>

#include "proto/testing/pair.h"

namespace beeline::proto::testing {
namespace {

using enum QpState;

struct Rule {
  std::uint32_t required = 0;
  std::uint32_t optional = 0;
};

// The manual page of ibv_modify_qp, once more and independently of the table: what RC needs.
// Transitions that are not here do not exist.
const std::map<std::pair<QpState, QpState>, Rule> rules = {
    {{reset, reset}, {}},
    {{reset, init}, {0x38, 0}},
    {{init, init}, {0, 0x38}},
    {{init, rtr}, {0x80 | 0x100 | 0x100000 | 0x1000 | 0x20000 | 0x8000, 0x8 | 0x10}},
    {{rtr, rts}, {0x200 | 0x400 | 0x800 | 0x10000 | 0x2000, 0x2 | 0x8 | 0x8000}},
    {{rts, rts}, {0, 0x2 | 0x8 | 0x8000}},
    {{init, reset}, {}},
    {{rtr, reset}, {}},
    {{rts, reset}, {}},
    {{sqe, reset}, {}},
    {{err, reset}, {}},
    {{init, err}, {}},
    {{rtr, err}, {}},
    {{rts, err}, {}},
    {{sqe, err}, {}},
    {{err, err}, {}},
};

// Every state x state x mask bit: the bit alone decides, given everything else is right.
TEST(QpState, TheTableIsTheManualPage) {
  for (const QpState from : all_qp_states) {
    for (const QpState to : all_qp_states) {
      SCOPED_TRACE(std::string(name(from)) + " to " + std::string(name(to)));
      const auto it = rules.find({from, to});
      const Rule rule = it == rules.end() ? Rule{} : it->second;
      const bool exists = it != rules.end();
      EXPECT_EQ(check_transition(from, to, attr::state | rule.required).has_value(), exists);
      EXPECT_EQ(check_transition(from, to, attr::state | rule.required | rule.optional).has_value(), exists);
      for (unsigned bit = 1; bit < 32; ++bit) {
        const std::uint32_t flag = 1u << bit;
        const std::uint32_t toggled = (attr::state | rule.required) ^ flag;
        const bool allowed = exists && (rule.optional & flag) != 0;
        EXPECT_EQ(check_transition(from, to, toggled).has_value(), allowed) << "bit " << bit;
      }
    }
  }
}

TEST(QpState, ErrorsNameStatesAndAttributes) {
  EXPECT_EQ(check_transition(reset, rts, attr::state).error().message,
            "queue pair cannot go from RESET to RTS");
  EXPECT_EQ(check_transition(reset, init, attr::state | attr::port).error().message,
            "queue pair from RESET to INIT: missing access flags, P_Key index");
  EXPECT_EQ(check_transition(rts, rts, attr::state | attr::sq_psn | 1u << 31).error().message,
            "queue pair from RTS to RTS: cannot change send PSN, unknown bits 0x80000000 here");
}

// The same, through a queue pair: a refused modify changes nothing.
TEST(QpState, AQueuePairFollowsTheTable) {
  const PairOptions options;
  for (const QpState from : all_qp_states) {
    if (from == sqe) continue;
    for (const QpState to : all_qp_states) {
      TestMemory memory;
      QueuePair qp({qpn_of(0), test_domain, options.limits, &memory, 1000});
      QpAttr attributes = attributes_of(options, 0);
      connect(attributes, from == err ? rts : from,
              [&](const QpAttr& a, std::uint32_t mask) { return qp.modify({}, a, mask); });
      attributes.state = err;
      if (from == err) {
        ASSERT_TRUE(qp.modify({}, attributes, attr::state));
      }
      ASSERT_EQ(qp.state(), from);
      attributes.state = to;
      const bool exists = rules.contains({from, to});
      const bool done = qp.modify({}, attributes, attr::state | transition(from, to).required).has_value();
      EXPECT_EQ(done, exists) << name(from) << " to " << name(to);
      EXPECT_EQ(qp.state(), exists ? to : from);
      EXPECT_EQ(qp.attributes().state, qp.state());
    }
  }
}

TEST(QpState, WithoutTheStateBitTheStateStays) {
  TestMemory memory;
  const PairOptions options;
  QueuePair qp({qpn_of(0), test_domain, options.limits, &memory, 1000});
  QpAttr attributes = attributes_of(options, 0);
  connect(attributes, rts, [&](const QpAttr& a, std::uint32_t mask) { return qp.modify({}, a, mask); });
  attributes.min_rnr_timer = 3;
  attributes.access = Access::remote_read;
  ASSERT_TRUE(qp.modify({}, attributes, attr::min_rnr_timer | attr::access_flags));
  EXPECT_EQ(qp.state(), rts);
  EXPECT_EQ(qp.attributes().min_rnr_timer, 3);
  EXPECT_EQ(qp.attributes().access, Access::remote_read);
}

TEST(QpState, AWrongCurrentStateIsRefused) {
  TestMemory memory;
  const PairOptions options;
  QueuePair qp({qpn_of(0), test_domain, options.limits, &memory, 1000});
  QpAttr attributes = attributes_of(options, 0);
  connect(attributes, rts, [&](const QpAttr& a, std::uint32_t mask) { return qp.modify({}, a, mask); });
  attributes.current_state = rtr;
  EXPECT_FALSE(qp.modify({}, attributes, attr::current_state));
  attributes.current_state = rts;
  EXPECT_TRUE(qp.modify({}, attributes, attr::current_state));
}

TEST(QpState, ValuesOutOfRangeAreRefused) {
  constexpr std::uint32_t all = 0x1FFFFF;
  const auto refused = [](auto change) {
    QpAttr attributes;
    EXPECT_TRUE(check_values(attributes, all));
    change(attributes);
    EXPECT_TRUE(check_values(attributes, 0)) << "values that are not meant do not matter";
    return !check_values(attributes, all).has_value();
  };
  for (const std::uint32_t mtu : {0u, 128u, 255u, 1000u, 1500u, 8192u})
    EXPECT_TRUE(refused([&](QpAttr& a) { a.path_mtu_bytes = mtu; })) << mtu;
  EXPECT_TRUE(refused([](QpAttr& a) { a.destination.value = 0x1000000; }));
  EXPECT_TRUE(refused([](QpAttr& a) { a.rq_psn.value = 0x1000000; }));
  EXPECT_TRUE(refused([](QpAttr& a) { a.sq_psn.value = 0x1000000; }));
  EXPECT_TRUE(refused([](QpAttr& a) { a.max_rd_atomic = 17; }));
  EXPECT_TRUE(refused([](QpAttr& a) { a.max_dest_rd_atomic = 17; }));
  EXPECT_TRUE(refused([](QpAttr& a) { a.min_rnr_timer = 32; }));
  EXPECT_TRUE(refused([](QpAttr& a) { a.timeout = 32; }));
  EXPECT_TRUE(refused([](QpAttr& a) { a.retry_count = 8; }));
  EXPECT_TRUE(refused([](QpAttr& a) { a.rnr_retry = 8; }));
}

}  // namespace
}  // namespace beeline::proto::testing
