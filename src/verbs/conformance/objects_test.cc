// Contexts, limits and the life of objects.
#include <fcntl.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "verbs/common/device_shell.h"
#include "verbs/conformance/conformance.h"

namespace beeline::verbs::conformance {

TEST_P(Objects, DeviceListEndsWithNullAndDevicesWithZeros) {
  int count = 0;
  ibv_device** list = provider().get_device_list(&count);
  ASSERT_NE(list, nullptr);
  ASSERT_GT(count, 0);
  EXPECT_EQ(list[count], nullptr);
  for (int i = 0; i < count; ++i) {
    EXPECT_STREQ(provider().get_device_name(list[i]), list[i]->name);
    EXPECT_EQ(list[i]->node_type, IBV_NODE_CA);
    // libmlx5 and libefa look right behind the struct for their own function table.
    const auto* tail = reinterpret_cast<const DeviceShell*>(list[i])->zeros.data();
    for (std::size_t at = 0; at < 768; ++at) ASSERT_EQ(tail[at], std::byte{0}) << at;
  }
  provider().free_device_list(list);
}

TEST_P(Objects, ContextAnswersWhatTheHeaderCallsUnchecked) {
  ibv_context* context = a_context_.get();
  ASSERT_EQ(context->abi_compat, __VERBS_ABI_IS_EXTENDED);
  EXPECT_EQ(verbs_get_ctx(context)->sz, sizeof(verbs_context));
  EXPECT_NE(fcntl(context->cmd_fd, F_GETFD), -1);
  EXPECT_NE(fcntl(context->async_fd, F_GETFD), -1);
  EXPECT_GE(context->num_comp_vectors, 1);
  EXPECT_NE(context->ops.poll_cq, nullptr);
  EXPECT_NE(context->ops.req_notify_cq, nullptr);
  EXPECT_NE(context->ops.post_send, nullptr);
  EXPECT_NE(context->ops.post_recv, nullptr);

  EXPECT_NE(context->ops.post_srq_recv, nullptr);
  EXPECT_NE(context->ops.bind_mw, nullptr);
  EXPECT_NE(context->ops.dealloc_mw, nullptr);
}

TEST_P(Objects, WhatIsNotOfferedSaysSo) {
  ibv_context* context = a_context_.get();
  if (verbs_get_ctx(context)->create_qp_ex == nullptr) {  // the small providers
    ibv_srq srq{};
    srq.context = context;
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_srq_recv(&srq, &wr, &bad), EOPNOTSUPP);
    EXPECT_EQ(bad, &wr);
    ibv_pd pd{context, 0};
    errno = 0;
    EXPECT_EQ(ibv_alloc_mw(&pd, IBV_MW_TYPE_1), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    ibv_cq_init_attr_ex attributes{};
    errno = 0;
    EXPECT_EQ(ibv_create_cq_ex(context, &attributes), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  // What none of ours has.
  ibv_alloc_dm_attr memory{};
  errno = 0;
  EXPECT_EQ(ibv_alloc_dm(context, &memory), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_xrcd_init_attr domain{};
  errno = 0;
  EXPECT_EQ(ibv_open_xrcd(context, &domain), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_wq_init_attr queue{};
  errno = 0;
  EXPECT_EQ(ibv_create_wq(context, &queue), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_values_ex values{};
  EXPECT_EQ(ibv_query_rt_values_ex(context, &values), EOPNOTSUPP);
}

TEST_P(Objects, PortIsRoce) {
  ibv_port_attr port{};
  ASSERT_EQ(provider().query_port(a_context_.get(), 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.lid, 0);
  EXPECT_GE(port.gid_tbl_len, 1);
  EXPECT_LE(port.active_mtu, port.max_mtu);
  EXPECT_NE(mtu_bytes(port.active_mtu), 0u);
  EXPECT_EQ(provider().query_port(a_context_.get(), 2, &port), EINVAL);

  // The three ways to the same answer: old programs know only the first 48 bytes.
  ibv_port_attr again{};
  auto* verbs = verbs_get_ctx(a_context_.get());
  ASSERT_EQ(verbs->query_port(a_context_.get(), 1, &again, sizeof again), 0);
  EXPECT_EQ(again.active_mtu, port.active_mtu);
  std::array<std::byte, sizeof(ibv_port_attr)> old{};
  old.fill(std::byte{0xEE});
  ASSERT_EQ(a_context_->ops._compat_query_port(a_context_.get(), 1,
                                               reinterpret_cast<_compat_ibv_port_attr*>(old.data())),
            0);
  EXPECT_EQ(std::memcmp(old.data(), &again, 48), 0);
  EXPECT_EQ(old[48], std::byte{0xEE});
}

TEST_P(Objects, GidTableSkipsWhatIsNotThere) {
  ibv_gid_entry entry{};
  const GidChoice choice = choose_gid(provider(), a_context_.get(), 1, std::nullopt).value();
  ASSERT_EQ(provider().query_gid_ex(a_context_.get(), 1, static_cast<std::uint32_t>(choice.index), &entry),
            0);
  EXPECT_EQ(entry.gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_ROCE_V2));
  EXPECT_EQ(to_gid(entry.gid), choice.gid);
  EXPECT_GT(entry.ndev_ifindex, 0u);
  EXPECT_NE(provider().query_gid_ex(a_context_.get(), 1, 100000, &entry), 0);
  EXPECT_NE(provider().query_gid_ex(a_context_.get(), 2, 0, &entry), 0);

  const auto missing = choose_gid(provider(), a_context_.get(), 1, 250);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::not_found);
  EXPECT_NE(missing.error().message.find("250"), std::string::npos) << missing.error().message;
}

TEST_P(Objects, LimitsThatAreAdvertisedAreEnforced) {
  ibv_device_attr device{};
  ASSERT_EQ(provider().query_device(a_context_.get(), &device), 0);
  EXPECT_EQ(device.phys_port_cnt, 1);
  EXPECT_EQ(device.node_guid, provider().get_device_guid(a_context_->device));
  const auto pd = alloc_pd(provider(), a_context_.get()).value();
  const auto cq = create_cq(provider(), a_context_.get(), 16, nullptr).value();
  const auto attempt = [&](QpOptions options) {
    return create_rc_qp(provider(), pd.get(), cq.get(), cq.get(), options).has_value();
  };
  const auto depth = static_cast<std::uint32_t>(device.max_qp_wr);
  const auto sges = static_cast<std::uint32_t>(device.max_sge);
  EXPECT_TRUE(attempt({.send_depth = depth, .receive_depth = depth}));
  EXPECT_FALSE(attempt({.send_depth = depth + 1}));
  EXPECT_FALSE(attempt({.receive_depth = depth + 1}));
  EXPECT_TRUE(attempt({.send_sges = sges, .receive_sges = sges}));
  EXPECT_FALSE(attempt({.send_sges = sges + 1}));
  EXPECT_FALSE(attempt({.receive_sges = sges + 1}));
  EXPECT_FALSE(attempt({.inline_bytes = 1u << 20}));
  EXPECT_EQ(provider().create_cq(a_context_.get(), 0, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(provider().create_cq(a_context_.get(), device.max_cqe + 1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(provider().create_cq(a_context_.get(), 16, nullptr, nullptr, 1000), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_P(Objects, UnsupportedKindsAreRefusedNotMisread) {
  const auto pd = alloc_pd(provider(), a_context_.get()).value();
  const auto cq = create_cq(provider(), a_context_.get(), 16, nullptr).value();
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq.get();
  attr.cap = {1, 1, 1, 1, 0};
  attr.qp_type = IBV_QPT_RAW_PACKET;
  EXPECT_EQ(provider().create_qp(pd.get(), &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  std::byte memory[64];
  EXPECT_EQ(provider().reg_mr(pd.get(), memory, 64, IBV_ACCESS_ON_DEMAND), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(provider().reg_mr(pd.get(), memory, 64, IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  // Relaxed ordering is a permission, never an error (IBV_ACCESS_OPTIONAL_RANGE).
  ibv_mr* mr = provider().reg_mr(pd.get(), memory, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(provider().dereg_mr(mr), 0);
}

TEST_P(Objects, WhatIsInUseStays) {
  End end = make_end();
  EXPECT_EQ(end.pd->context, end.context);
  EXPECT_EQ(end.cq->context, end.context);
  EXPECT_EQ(end.qp->context, end.context);
  EXPECT_EQ(end.region->context, end.context);
  EXPECT_EQ(end.channel->context, end.context);
  EXPECT_EQ(end.channel->refcnt, 1);
  EXPECT_EQ(provider().close_device(end.context), EBUSY);
  EXPECT_EQ(provider().dealloc_pd(end.pd.get()), EBUSY);
  EXPECT_EQ(provider().destroy_cq(end.cq.get()), EBUSY);
  EXPECT_EQ(provider().destroy_comp_channel(end.channel.get()), EBUSY);
  end.qp.reset();
  EXPECT_EQ(provider().dealloc_pd(end.pd.get()), EBUSY) << "its region is still registered";
  end.region.reset();
  EXPECT_EQ(provider().dealloc_pd(end.pd.release()), 0);
  EXPECT_EQ(provider().destroy_cq(end.cq.release()), 0);
  EXPECT_EQ(provider().destroy_comp_channel(end.channel.release()), 0);
}

TEST_P(Objects, StatesChangeOnlyAlongTheTable) {
  End end = make_end();
  ibv_qp* qp = end.qp.get();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  EXPECT_NE(provider().modify_qp(qp, &attr, IBV_QP_STATE), 0) << "RESET to RTS";
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  EXPECT_NE(provider().modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0) << "attributes missing";
  constexpr int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  attr.port_num = 2;
  EXPECT_NE(provider().modify_qp(qp, &attr, to_init), 0) << "no such port";
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  attr.port_num = 1;
  EXPECT_EQ(provider().modify_qp(qp, &attr, to_init), 0);
  EXPECT_EQ(qp->state, IBV_QPS_INIT);
  attr.qp_state = IBV_QPS_RTR;
  EXPECT_NE(provider().modify_qp(qp, &attr, IBV_QP_STATE), 0) << "RTR without an address";
  EXPECT_EQ(qp->state, IBV_QPS_INIT);
}

TEST_P(Objects, QueryReturnsWhatWasSet) {
  End a = make_end(), b = make_end();
  ConnectOptions options;
  options.timeout = 11;
  options.retry_count = 5;
  options.rnr_retry = 4;
  options.min_rnr_timer = 9;
  connect(a, b, options);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(provider().query_qp(a.qp.get(), &attr, 0xFFFF, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.dest_qp_num, b.qp->qp_num);
  EXPECT_EQ(to_gid(attr.ah_attr.grh.dgid), b.gid.gid);
  EXPECT_EQ(attr.timeout, 11);
  EXPECT_EQ(attr.retry_cnt, 5);
  EXPECT_EQ(attr.rnr_retry, 4);
  EXPECT_EQ(attr.min_rnr_timer, 9);
  EXPECT_EQ(mtu_bytes(attr.path_mtu), mtu());
  EXPECT_EQ(init.send_cq, a.cq.get());
  EXPECT_EQ(init.cap.max_send_wr, 128u);
}

}  // namespace beeline::verbs::conformance
