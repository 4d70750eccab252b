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

using Rules = std::map<std::pair<QpState, QpState>, Rule>;

// The manual page of ibv_modify_qp and Linux's qp_state_table, once more and independently of the
// table, with the bits as numbers. Transitions that are not here do not exist.
const Rules rc_rules = {
    {{reset, reset}, {}},
    {{reset, init}, {0x38, 0}},
    {{init, init}, {0, 0x38}},
    {{init, rtr}, {0x80 | 0x100 | 0x100000 | 0x1000 | 0x20000 | 0x8000, 0x8 | 0x10}},
    {{rtr, rts}, {0x200 | 0x400 | 0x800 | 0x10000 | 0x2000, 0x2 | 0x8 | 0x8000}},
    {{rts, rts}, {0, 0x2 | 0x8 | 0x8000}},
    {{rts, sqd}, {0, 0x4}},
    {{sqd, rts}, {0, 0x2 | 0x8 | 0x8000}},
    {{sqd, sqd}, {0, 0x20 | 0x80 | 0x200 | 0x400 | 0x800 | 0x2000 | 0x20000 | 0x8 | 0x10 | 0x8000}},
    {{sqe, rts}, {}},
};
const Rules uc_rules = {
    {{reset, reset}, {}},
    {{reset, init}, {0x38, 0}},
    {{init, init}, {0, 0x38}},
    {{init, rtr}, {0x80 | 0x100 | 0x100000 | 0x1000, 0x8 | 0x10}},
    {{rtr, rts}, {0x10000, 0x2 | 0x8}},
    {{rts, rts}, {0, 0x2 | 0x8}},
    {{rts, sqd}, {0, 0x4}},
    {{sqd, rts}, {0, 0x2 | 0x8}},
    {{sqd, sqd}, {0, 0x80 | 0x8 | 0x10}},
    {{sqe, rts}, {0, 0x2 | 0x8}},
};
const Rules ud_rules = {
    {{reset, reset}, {}},
    {{reset, init}, {0x70, 0}},
    {{init, init}, {0, 0x70}},
    {{init, rtr}, {0, 0x10 | 0x40}},
    {{rtr, rts}, {0x10000, 0x2 | 0x40}},
    {{rts, rts}, {0, 0x2 | 0x40}},
    {{rts, sqd}, {0, 0x4}},
    {{sqd, rts}, {0, 0x2 | 0x40}},
    {{sqd, sqd}, {0, 0x10 | 0x40}},
    {{sqe, rts}, {0, 0x2 | 0x40}},
};

const Rule* rule_of(QpType type, QpState from, QpState to) {
  static const Rule bare;
  if (from != reset && (to == reset || to == err)) return &bare;
  const Rules& rules = type == QpType::rc ? rc_rules : type == QpType::uc ? uc_rules : ud_rules;
  const auto it = rules.find({from, to});
  return it == rules.end() ? nullptr : &it->second;
}

// Every type x state x state x mask bit: the bit alone decides, given everything else is right.
TEST(QpState, TheTableIsTheManualPage) {
  for (const QpType type : all_qp_types) {
    for (const QpState from : all_qp_states) {
      for (const QpState to : all_qp_states) {
        SCOPED_TRACE(std::string(name(from)) + " to " + std::string(name(to)));
        const Rule* const found = rule_of(type, from, to);
        const Rule rule = found == nullptr ? Rule{} : *found;
        const bool exists = found != nullptr;
        const auto accepted = [&](std::uint32_t mask) {
          return check_transition(type, from, to, attr::state | mask).has_value();
        };
        EXPECT_EQ(accepted(rule.required), exists);
        EXPECT_EQ(accepted(rule.required | rule.optional), exists);
        for (unsigned bit = 1; bit < 32; ++bit) {
          const std::uint32_t flag = 1u << bit;
          EXPECT_EQ(accepted(rule.required ^ flag), exists && (rule.optional & flag) != 0) << "bit " << bit;
        }
      }
    }
  }
}

TEST(QpState, ErrorsNameStatesAndAttributes) {
  EXPECT_EQ(check_transition(QpType::rc, reset, rts, attr::state).error().message,
            "queue pair cannot go from RESET to RTS");
  EXPECT_EQ(check_transition(QpType::rc, reset, init, attr::state | attr::port).error().message,
            "queue pair from RESET to INIT: missing access flags, P_Key index");
  EXPECT_EQ(check_transition(QpType::rc, rts, rts, attr::state | attr::sq_psn | 1u << 31).error().message,
            "queue pair from RTS to RTS: cannot change send PSN, unknown bits 0x80000000 here");
  EXPECT_EQ(check_transition(QpType::ud, rts, rts, attr::state | attr::notify_drained).error().message,
            "queue pair from RTS to RTS: cannot change drained notification here");
}

// Brings a queue pair to a state that a program can bring it to.
void bring_to(QueuePair& qp, QpState target) {
  QpAttr attributes = attributes_of(PairOptions{}, 0);
  connect(attributes, target == err || target == sqd ? rts : target,
          [&](const QpAttr& a, std::uint32_t mask) { return qp.modify({}, a, mask); });
  attributes.state = target;
  if (target == err || target == sqd) {
    ASSERT_TRUE(qp.modify({}, attributes, attr::state));
  }
  ASSERT_EQ(qp.state(), target);
}

// The same, through a queue pair: a refused modify changes nothing.
TEST(QpState, AQueuePairFollowsTheTable) {
  const PairOptions options;
  for (const QpState from : all_qp_states) {
    if (from == sqe) continue;  // RC never goes there
    for (const QpState to : all_qp_states) {
      TestMemory memory;
      QueuePair qp({qpn_of(0), test_domain, options.limits, &memory, 1000});
      bring_to(qp, from);
      QpAttr attributes = attributes_of(options, 0);
      attributes.state = to;
      const Rule* const rule = rule_of(QpType::rc, from, to);
      const std::uint32_t mask = attr::state | (rule == nullptr ? 0 : rule->required);
      EXPECT_EQ(qp.modify({}, attributes, mask).has_value(), rule != nullptr)
          << name(from) << " to " << name(to);
      EXPECT_EQ(qp.state(), rule != nullptr ? to : from);
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
