// What the card does not offer: refused with EOPNOTSUPP, every time, and nothing half done. Each verb by
// name; verbs_test.py holds the list against the header and against what the preload library exports.
#include <infiniband/verbs.h>

#include <cerrno>

#include "kit.h"

namespace conformance {
namespace {

// The two ways in which verbs fail, as one number.
template <class T>
int error_of(T* made) {
  return made == nullptr ? errno : 0;
}
int error_of(int returned) { return returned == -1 ? errno : returned; }

// Objects of kinds that the card has none of: a program has them from nowhere but a device that made them.
template <class T>
T imagined(ibv_context* context) {
  T object{};
  object.context = context;
  return object;
}

struct Given {
  ibv_context* context;
  End& end;
};
struct Unoffered {
  const char* name;
  int (*call)(Given given);
};

const Unoffered verbs[] = {
    // Flow steering.
    {"ibv_create_flow",
     [](Given given) {
       ibv_flow_attr attr{};
       return error_of(ibv_create_flow(given.end.qp.get(), &attr));
     }},
    {"ibv_destroy_flow",
     [](Given given) {
       ibv_flow flow{};
       flow.context = given.context;
       return ibv_destroy_flow(&flow);
     }},
    {"ibv_create_flow_action_esp",
     [](Given given) {
       ibv_flow_action_esp_attr attr{};
       return error_of(ibv_create_flow_action_esp(given.context, &attr));
     }},
    {"ibv_modify_flow_action_esp",
     [](Given given) {
       auto action = imagined<ibv_flow_action>(given.context);
       ibv_flow_action_esp_attr attr{};
       return ibv_modify_flow_action_esp(&action, &attr);
     }},
    {"ibv_destroy_flow_action",
     [](Given given) {
       auto action = imagined<ibv_flow_action>(given.context);
       return ibv_destroy_flow_action(&action);
     }},
    // Extended reliable connections, and shared queues of other kinds.
    {"ibv_open_xrcd",
     [](Given given) {
       ibv_xrcd_init_attr attr{};
       return error_of(ibv_open_xrcd(given.context, &attr));
     }},
    {"ibv_open_qp",
     [](Given given) {
       ibv_qp_open_attr attr{};
       return error_of(ibv_open_qp(given.context, &attr));
     }},
    {"ibv_create_srq_ex",
     [](Given given) {
       ibv_srq_init_attr_ex attr{};
       attr.attr = {16, 1, 0};
       attr.pd = given.end.pd.get();
       attr.srq_type = IBV_SRQT_TM;
       attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
       return error_of(ibv_create_srq_ex(given.context, &attr));
     }},
    {"ibv_get_srq_num",
     [](Given given) {
       std::uint32_t number = 0;
       return ibv_get_srq_num(given.end.srq.get(), &number);
     }},
    {"ibv_post_srq_ops",
     [](Given given) {
       ibv_ops_wr wr{};
       ibv_ops_wr* bad = nullptr;
       return ibv_post_srq_ops(given.end.srq.get(), &wr, &bad);
     }},
    {"ibv_modify_srq",
     [](Given given) {
       ibv_srq_attr attr{64, 1, 0};
       return ibv_modify_srq(given.end.srq.get(), &attr, IBV_SRQ_MAX_WR);
     }},
    // Device memory and memory of others.
    {"ibv_alloc_dm",
     [](Given given) {
       ibv_alloc_dm_attr attr{};
       return error_of(ibv_alloc_dm(given.context, &attr));
     }},
    {"ibv_import_dm", [](Given given) { return error_of(ibv_import_dm(given.context, 1)); }},
    {"ibv_reg_dmabuf_mr",
     [](Given given) {
       return error_of(ibv_reg_dmabuf_mr(given.end.pd.get(), 0, 4096, 0, 0, IBV_ACCESS_LOCAL_WRITE));
     }},
    {"ibv_alloc_null_mr", [](Given given) { return error_of(ibv_alloc_null_mr(given.end.pd.get())); }},
    {"ibv_advise_mr",
     [](Given given) {
       ibv_sge piece = given.end.sge(0, 64);
       return ibv_advise_mr(given.end.pd.get(), IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &piece, 1);
     }},
    {"ibv_import_pd", [](Given given) { return error_of(ibv_import_pd(given.context, 1)); }},
    {"ibv_import_mr", [](Given given) { return error_of(ibv_import_mr(given.end.pd.get(), 1)); }},
    {"ibv_reg_mr",
     [](Given given) {
       return error_of(ibv_reg_mr(given.end.pd.get(), given.end.buffer.data(), 64,
                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND));
     }},
    // Domains of threads.
    {"ibv_alloc_td",
     [](Given given) {
       ibv_td_init_attr attr{};
       return error_of(ibv_alloc_td(given.context, &attr));
     }},
    {"ibv_dealloc_td",
     [](Given given) {
       auto domain = imagined<ibv_td>(given.context);
       return ibv_dealloc_td(&domain);
     }},
    {"ibv_alloc_parent_domain",
     [](Given given) {
       ibv_parent_domain_init_attr attr{};
       attr.pd = given.end.pd.get();
       return error_of(ibv_alloc_parent_domain(given.context, &attr));
     }},
    // Counters, work queues, clocks.
    {"ibv_create_counters",
     [](Given given) {
       ibv_counters_init_attr attr{};
       return error_of(ibv_create_counters(given.context, &attr));
     }},
    {"ibv_destroy_counters",
     [](Given given) {
       auto counters = imagined<ibv_counters>(given.context);
       return ibv_destroy_counters(&counters);
     }},
    {"ibv_attach_counters_point_flow",
     [](Given given) {
       auto counters = imagined<ibv_counters>(given.context);
       ibv_counter_attach_attr attr{};
       return ibv_attach_counters_point_flow(&counters, &attr, nullptr);
     }},
    {"ibv_read_counters",
     [](Given given) {
       auto counters = imagined<ibv_counters>(given.context);
       std::uint64_t value = 0;
       return ibv_read_counters(&counters, &value, 1, 0);
     }},
    {"ibv_create_wq",
     [](Given given) {
       ibv_wq_init_attr attr{};
       return error_of(ibv_create_wq(given.context, &attr));
     }},
    {"ibv_modify_wq",
     [](Given given) {
       auto queue = imagined<ibv_wq>(given.context);
       ibv_wq_attr attr{};
       return ibv_modify_wq(&queue, &attr);
     }},
    {"ibv_destroy_wq",
     [](Given given) {
       auto queue = imagined<ibv_wq>(given.context);
       return ibv_destroy_wq(&queue);
     }},
    {"ibv_create_rwq_ind_table",
     [](Given given) {
       ibv_rwq_ind_table_init_attr attr{};
       return error_of(ibv_create_rwq_ind_table(given.context, &attr));
     }},
    {"ibv_destroy_rwq_ind_table",
     [](Given given) {
       auto table = imagined<ibv_rwq_ind_table>(given.context);
       return ibv_destroy_rwq_ind_table(&table);
     }},
    {"ibv_query_rt_values_ex",
     [](Given given) {
       ibv_values_ex values{};
       return ibv_query_rt_values_ex(given.context, &values);
     }},
    {"ibv_modify_cq",
     [](Given given) {
       ibv_modify_cq_attr attr{};
       return ibv_modify_cq(given.end.cq.get(), &attr);
     }},
    // Of queue pairs.
    {"ibv_modify_qp_rate_limit",
     [](Given given) {
       ibv_qp_rate_limit_attr attr{};
       return ibv_modify_qp_rate_limit(given.end.qp.get(), &attr);
     }},
    {"ibv_attach_mcast",
     [](Given given) {
       ibv_gid group{};
       group.raw[0] = 0xFF;
       return ibv_attach_mcast(given.end.qp.get(), &group, 0);
     }},
    {"ibv_detach_mcast",
     [](Given given) {
       ibv_gid group{};
       group.raw[0] = 0xFF;
       return ibv_detach_mcast(given.end.qp.get(), &group, 0);
     }},
    {"ibv_query_ece",
     [](Given given) {
       ibv_ece options{};
       return ibv_query_ece(given.end.qp.get(), &options);
     }},
    {"ibv_set_ece",
     [](Given given) {
       ibv_ece options{};
       return ibv_set_ece(given.end.qp.get(), &options);
     }},
    {"ibv_modify_qp",
     [](Given given) {
       ibv_qp_attr attr{};
       attr.rate_limit = 1;
       return ibv_modify_qp(given.end.qp.get(), &attr, IBV_QP_RATE_LIMIT);
     }},
    // Ethernet headers are the kernel's.
    {"ibv_resolve_eth_l2_from_gid",
     [](Given given) {
       ibv_ah_attr attr{};
       std::uint8_t mac[6];
       std::uint16_t vlan = 0;
       return error_of(ibv_resolve_eth_l2_from_gid(given.context, &attr, mac, &vlan));
     }},
};

class CardRefusals : public Verbs {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Verbs::SetUp());
    EndOptions options;
    options.shared_queue = true;
    pair_of(IBV_QPT_RC, options);
  }
  void TearDown() override {
    // Whatever was refused, everything still works.
    ASSERT_EQ(b.receive(1, 0, 64), 0);
    ASSERT_EQ(a.send(IBV_WR_SEND, 0, 64), 0);
    EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(b.next().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(same(a, 0, b, 0, 64));
  }
};

TEST_F(CardRefusals, EveryVerbThatIsNotOffered) {
  for (const Unoffered& verb : verbs) {
    errno = 0;
    EXPECT_EQ(verb.call({context_.get(), a}), EOPNOTSUPP) << verb.name;
  }
}

// They return nothing, so all they can do is nothing.
TEST_F(CardRefusals, WhatWasNeverImportedIsNotGivenBack) {
  ibv_unimport_pd(a.pd.get());
  ibv_unimport_mr(a.mr.get());
  ibv_dm memory{};
  memory.context = context_.get();
  ibv_unimport_dm(&memory);
}

TEST_F(CardRefusals, ADeviceIsNotImported) {
  errno = 0;
  EXPECT_EQ(ibv_import_device(context_->cmd_fd), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(CardRefusals, QueuePairsOfOtherKinds) {
  const auto attempt = [&](const std::function<void(ibv_qp_init_attr_ex&)>& spoil) {
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = a.cq.get();
    attr.cap = {1, 1, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    attr.pd = a.pd.get();
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    spoil(attr);
    errno = 0;
    const QueuePair made(ibv_create_qp_ex(context_.get(), &attr));
    return made == nullptr ? errno : 0;
  };
  EXPECT_EQ(attempt([](auto&) {}), 0);
  for (const ibv_qp_type type : {IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_DRIVER})
    EXPECT_EQ(attempt([&](auto& attr) { attr.qp_type = type; }), EOPNOTSUPP) << type;
  for (const std::uint32_t flag :
       {IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, IBV_QP_CREATE_SCATTER_FCS, IBV_QP_CREATE_CVLAN_STRIPPING,
        IBV_QP_CREATE_SOURCE_QPN, IBV_QP_CREATE_PCI_WRITE_END_PADDING})
    EXPECT_EQ(attempt([&](auto& attr) {
                attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
                attr.create_flags = flag;
              }),
              EOPNOTSUPP)
        << flag;
  EXPECT_EQ(attempt([](auto& attr) {
              attr.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
              attr.max_tso_header = 14;
            }),
            EOPNOTSUPP);
  for (const std::uint32_t part :
       {IBV_QP_INIT_ATTR_XRCD, IBV_QP_INIT_ATTR_IND_TABLE, IBV_QP_INIT_ATTR_RX_HASH})
    EXPECT_EQ(attempt([&](auto& attr) { attr.comp_mask |= part; }), EOPNOTSUPP) << part;
  for (const std::uint64_t operation : {IBV_QP_EX_WITH_TSO, IBV_QP_EX_WITH_ATOMIC_WRITE})
    EXPECT_EQ(attempt([&](auto& attr) {
                attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
                attr.send_ops_flags = operation;
              }),
              EOPNOTSUPP)
        << operation;
  EXPECT_EQ(attempt([](auto& attr) {
              attr.qp_type = IBV_QPT_UD;
              attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
              attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ;
            }),
            EOPNOTSUPP);
}

TEST_F(CardRefusals, CompletionQueuesWithMoreThanTheBasics) {
  const auto attempt = [&](std::uint64_t fields, std::uint32_t parts, std::uint32_t flags) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 8;
    attr.wc_flags = fields;
    attr.comp_mask = parts;
    attr.flags = flags;
    errno = 0;
    ibv_cq_ex* made = ibv_create_cq_ex(context_.get(), &attr);
    if (made == nullptr) return errno;
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(made)), 0);
    return 0;
  };
  EXPECT_EQ(attempt(IBV_WC_STANDARD_FLAGS, IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_SINGLE_THREADED),
            0);
  for (const std::uint64_t field :
       {IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG,
        IBV_WC_EX_WITH_TM_INFO, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK})
    EXPECT_EQ(attempt(field, 0, 0), EOPNOTSUPP) << field;
  EXPECT_EQ(attempt(0, IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN), EOPNOTSUPP);
  EXPECT_EQ(attempt(0, IBV_CQ_INIT_ATTR_MASK_PD, 0), EOPNOTSUPP);
}

TEST_F(CardRefusals, RequestsOfOtherKinds) {
  for (const ibv_wr_opcode opcode : {IBV_WR_TSO, IBV_WR_DRIVER1, IBV_WR_ATOMIC_WRITE})
    EXPECT_EQ(a.send(opcode, 0, 8), EOPNOTSUPP) << opcode;
}

TEST_F(CardRefusals, AnAnswerToWhatWasNoDatagram) {
  ASSERT_EQ(b.receive(1, 100, 64), 0);
  ASSERT_EQ(a.send(IBV_WR_SEND, 0, 8), 0);
  ASSERT_EQ(a.next().status, IBV_WC_SUCCESS);
  ibv_wc wc = b.next();  // of a connection: no GRH
  ibv_grh grh{};
  errno = 0;
  EXPECT_EQ(ibv_create_ah_from_wc(b.pd.get(), &wc, &grh, 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  wc.wc_flags |= IBV_WC_GRH;  // and one that is no header of either kind
  EXPECT_EQ(ibv_create_ah_from_wc(b.pd.get(), &wc, &grh, 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace conformance
