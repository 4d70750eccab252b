// What the card says about itself.
#include <endian.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>
#include <vector>

#include "verbs/soft/testing/kit.h"

namespace beeline::verbs::soft {
namespace {

class Query : public SoftVerbs {};

TEST_F(Query, DeviceAttributesAreComplete) {
  ibv_device_attr device{};
  ASSERT_EQ(provider().query_device(context(), &device), 0);
  EXPECT_NE(device.node_guid, 0u);
  EXPECT_NE(device.sys_image_guid, 0u);
  EXPECT_NE(device.vendor_id, 0u);
  EXPECT_GE(device.page_size_cap, 4096u);
  for (const int limit :
       {device.max_qp, device.max_qp_wr, device.max_sge, device.max_sge_rd, device.max_cq, device.max_cqe,
        device.max_mr, device.max_pd, device.max_mw, device.max_ah, device.max_srq, device.max_srq_wr,
        device.max_srq_sge, device.max_qp_rd_atom, device.max_qp_init_rd_atom, device.max_res_rd_atom})
    EXPECT_GT(limit, 0);
  EXPECT_EQ(device.max_pkeys, 1);
  EXPECT_EQ(device.phys_port_cnt, 1);
  EXPECT_EQ(device.atomic_cap, IBV_ATOMIC_HCA);
  EXPECT_EQ(device.device_cap_flags & (IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2A |
                                       IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_SRQ_RESIZE),
            unsigned{IBV_DEVICE_MEM_WINDOW} | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
  EXPECT_EQ(device.max_mcast_grp, 0) << "no multicast";
  EXPECT_EQ(device.max_ee + device.max_rdd + device.max_raw_ethy_qp + device.max_fmr, 0);
}

TEST_F(Query, ExtendedAttributesAddNothingUntrue) {
  ibv_device_attr_ex extended{};
  std::memset(&extended, 0xFF, sizeof extended);
  const auto query = verbs_get_ctx(context())->query_device_ex;
  ASSERT_EQ(query(context(), nullptr, &extended, sizeof extended), 0);
  ibv_device_attr plain{};
  ASSERT_EQ(provider().query_device(context(), &plain), 0);
  // Byte for byte, its gaps too.
  const auto bytes = [](const ibv_device_attr& attributes) {
    return std::string_view(reinterpret_cast<const char*>(&attributes), sizeof attributes);
  };
  EXPECT_EQ(bytes(plain), bytes(extended.orig_attr));
  EXPECT_EQ(extended.phys_port_cnt_ex, 1u);
  EXPECT_EQ(extended.odp_caps.general_caps, 0u);
  EXPECT_EQ(extended.completion_timestamp_mask, 0u);
  EXPECT_EQ(extended.tso_caps.max_tso, 0u);
  EXPECT_EQ(extended.raw_packet_caps, 0u);
  EXPECT_EQ(extended.max_dm_size, 0u);
  EXPECT_EQ(extended.tm_caps.max_num_tags, 0u);
  // An older program's struct is shorter.
  struct {
    ibv_device_attr_ex attributes;
  } old{};
  std::memset(&old, 0xFF, sizeof old);
  constexpr std::size_t old_bytes = offsetof(ibv_device_attr_ex, tso_caps);
  ASSERT_EQ(query(context(), nullptr, &old.attributes, old_bytes), 0);
  EXPECT_EQ(reinterpret_cast<unsigned char*>(&old)[old_bytes], 0xFF) << "written beyond it";
  EXPECT_EQ(query(context(), nullptr, &old.attributes, 8), EINVAL);
  ibv_query_device_ex_input unknown{1};
  EXPECT_EQ(query(context(), &unknown, &extended, sizeof extended), EINVAL);
}

TEST_F(Query, GidsInEveryWay) {
  ibv_port_attr port{};
  ASSERT_EQ(provider().query_port(context(), 1, &port), 0);
  const auto slots = static_cast<std::size_t>(port.gid_tbl_len);
  std::vector<ibv_gid_entry> table(slots);
  const ssize_t filled = provider().query_gid_table(context(), table.data(), slots, 0, sizeof(ibv_gid_entry));
  ASSERT_GT(filled, 0);
  for (std::size_t i = 0; i < static_cast<std::size_t>(filled); ++i) {
    EXPECT_EQ(table[i].gid_type, std::uint32_t{IBV_GID_TYPE_ROCE_V2});
    EXPECT_EQ(table[i].port_num, 1u);
    ibv_gid_entry one{};
    ASSERT_EQ(provider().query_gid_ex(context(), 1, table[i].gid_index, &one), 0);
    EXPECT_EQ(std::memcmp(&one, &table[i], sizeof one), 0);
    ibv_gid gid{};
    ASSERT_EQ(provider().query_gid(context(), 1, static_cast<int>(table[i].gid_index), &gid), 0);
    EXPECT_EQ(std::memcmp(&gid, &table[i].gid, sizeof gid), 0);
  }
  const auto live = static_cast<std::size_t>(filled);
  EXPECT_EQ(provider().query_gid_table(context(), table.data(), live - 1, 0, sizeof(ibv_gid_entry)), -EINVAL);
  EXPECT_EQ(provider().query_gid_table(context(), table.data(), slots, 1, sizeof(ibv_gid_entry)), -EINVAL);
  EXPECT_EQ(provider().query_gid_table(context(), table.data(), slots, 0, 16), -EINVAL);
  ibv_gid gid{};
  ibv_gid_entry entry{};
  EXPECT_EQ(provider().query_gid(context(), 2, 0, &gid), -1);
  EXPECT_EQ(provider().query_gid(context(), 1, -1, &gid), -1);
  EXPECT_EQ(provider().query_gid(context(), 1, port.gid_tbl_len, &gid), -1);
  EXPECT_EQ(provider().query_gid_ex(context(), 1, static_cast<std::uint32_t>(port.gid_tbl_len), &entry),
            EINVAL);
}

TEST_F(Query, ThereIsOnePartition) {
  __be16 pkey = 0;
  ASSERT_EQ(provider().query_pkey(context(), 1, 0, &pkey), 0);
  EXPECT_EQ(pkey, 0xFFFF);
  EXPECT_EQ(provider().query_pkey(context(), 1, 1, &pkey), -1);
  EXPECT_EQ(provider().query_pkey(context(), 2, 0, &pkey), -1);
  EXPECT_EQ(provider().get_pkey_index(context(), 1, 0xFFFF), 0);
  EXPECT_EQ(provider().get_pkey_index(context(), 1, htobe16(0x7FFF)), -1);
}

TEST_F(Query, LimitsAreEnforced) {
  ibv_device_attr device{};
  ASSERT_EQ(provider().query_device(context(), &device), 0);
  ibv_pd* pd = provider().alloc_pd(context());
  const auto srq = [&](int depth, int sges) {
    ibv_srq_init_attr attr{nullptr, {static_cast<std::uint32_t>(depth), static_cast<std::uint32_t>(sges), 0}};
    ibv_srq* made = provider().create_srq(pd, &attr);
    return made != nullptr && provider().destroy_srq(made) == 0;
  };
  EXPECT_TRUE(srq(device.max_srq_wr, device.max_srq_sge));
  EXPECT_FALSE(srq(device.max_srq_wr + 1, 1));
  EXPECT_FALSE(srq(1, device.max_srq_sge + 1));
  EXPECT_FALSE(srq(0, 1));
  ibv_cq* cq = provider().create_cq(context(), 1, nullptr, nullptr, 0);
  const auto qp = [&](ibv_qp_type type, ibv_qp_cap cap) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.qp_type = type;
    attr.cap = cap;
    ibv_qp* made = provider().create_qp(pd, &attr);
    return made != nullptr && provider().destroy_qp(made) == 0;
  };
  const auto depth = static_cast<std::uint32_t>(device.max_qp_wr);
  const auto sges = static_cast<std::uint32_t>(device.max_sge);
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    EXPECT_TRUE(qp(type, {depth, depth, sges, sges, 0})) << type;
    EXPECT_FALSE(qp(type, {UINT32_MAX, 1, 1, 1, 0})) << type;
    EXPECT_FALSE(qp(type, {1, UINT32_MAX, 1, 1, 0})) << type;
    EXPECT_FALSE(qp(type, {1, 1, sges + 1, 1, 0})) << type;
    EXPECT_FALSE(qp(type, {1, 1, 1, sges + 1, 0})) << type;
    EXPECT_FALSE(qp(type, {1, 1, 1, 1, 1u << 20})) << type;
  }
  for (const int type : {0, 1, 7, static_cast<int>(IBV_QPT_RAW_PACKET), static_cast<int>(IBV_QPT_XRC_SEND),
                         static_cast<int>(IBV_QPT_XRC_RECV), static_cast<int>(IBV_QPT_DRIVER)}) {
    EXPECT_FALSE(qp(static_cast<ibv_qp_type>(type), {1, 1, 1, 1, 0}));
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  EXPECT_EQ(provider().create_cq(context(), 8, nullptr, nullptr, context()->num_comp_vectors), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(provider().destroy_cq(cq), 0);
  EXPECT_EQ(provider().dealloc_pd(pd), 0);
}

}  // namespace
}  // namespace beeline::verbs::soft
