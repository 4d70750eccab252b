#include <gtest/gtest.h>

#include "verbs/common/device_shell.h"
#include "verbs/fake/fake_provider.h"
#include "verbs/verbs.h"

namespace beeline::verbs {
namespace {

FakeDevice device(std::string name, std::vector<Gid> gids, bool active = true) {
  return {.name = std::move(name), .active = active, .gids = std::move(gids)};
}

int chosen_index(std::vector<Gid> gids) {
  const auto provider = make_fake_provider({.devices = {device("fake0", std::move(gids))}});
  const auto context = open_device(*provider, "fake0");
  const auto choice = choose_gid(*provider, context->get(), 1, std::nullopt);
  return choice ? choice->index : -1;
}

const Gid v4 = Gid::v4(10, 0, 0, 1), local_v4 = Gid::v4(169, 254, 0, 1), loopback = Gid::v4(127, 0, 0, 1);
const Gid v6 = *parse_address("2001:db8::1"), local_v6 = *parse_address("fe80::1");

TEST(ChooseGid, RanksRoutableBeforeLoopbackBeforeLinkLocal) {
  EXPECT_EQ(chosen_index({local_v6, local_v4, loopback, v6, v4}), 4);
  EXPECT_EQ(chosen_index({local_v6, loopback, v6}), 2);
  EXPECT_EQ(chosen_index({local_v6, local_v4, loopback}), 2);
  EXPECT_EQ(chosen_index({local_v6}), 0);
  EXPECT_EQ(chosen_index({v4, Gid::v4(10, 0, 0, 2)}), 0) << "the first of equals";
}

TEST(ChooseGid, FollowsThePeersFamilyAndKind) {
  const auto provider = make_fake_provider({.devices = {device("fake0", {local_v6, v4, v6, loopback})}});
  const auto context = open_device(*provider, "fake0");
  const auto chosen = [&](const Gid& peer) {
    return choose_gid(*provider, context->get(), 1, std::nullopt, peer)->index;
  };
  EXPECT_EQ(chosen(Gid::v4(10, 0, 0, 9)), 1);
  EXPECT_EQ(chosen(*parse_address("2001:db8::9")), 2);
  EXPECT_EQ(chosen(*parse_address("fe80::9")), 0);
  EXPECT_EQ(chosen(loopback), 3);
  EXPECT_EQ(choose_gid(*provider, context->get(), 1, 1, *parse_address("fe80::9"))->index, 1) << "wanted";
}

TEST(ChooseGid, SkipsEmptySlots) {
  EXPECT_EQ(chosen_index({Gid{}, Gid{}, v6}), 2);
  EXPECT_EQ(chosen_index({Gid{}}), -1);
}

TEST(ChooseGid, TakesTheWantedIndexOrSaysWhatThereIs) {
  const auto provider = make_fake_provider({.devices = {device("fake0", {v4, Gid{}, local_v6})}});
  const auto context = open_device(*provider, "fake0");
  EXPECT_EQ(choose_gid(*provider, context->get(), 1, 2)->gid, local_v6);
  const auto empty = choose_gid(*provider, context->get(), 1, 1);
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().message,
            "device fake0 has no RoCE v2 GID at index 1; there are: 0 (10.0.0.1) 2 (fe80::1)");
  EXPECT_FALSE(choose_gid(*provider, context->get(), 1, -1));
  EXPECT_FALSE(choose_gid(*provider, context->get(), 7, std::nullopt)) << "no such port";
}

TEST(OpenDevice, TakesTheFirstUsableOneOrTheNamedOne) {
  const auto provider = make_fake_provider({.devices = {device("down0", {v4}, false), device("bare0", {}),
                                                        device("good0", {v4}), device("good1", {v6})}});
  EXPECT_STREQ((*open_device(*provider, ""))->device->name, "good0");
  EXPECT_STREQ((*open_device(*provider, "good1"))->device->name, "good1");
  EXPECT_STREQ((*open_device(*provider, "down0"))->device->name, "down0") << "named: the caller's wish";
}

TEST(OpenDevice, TheErrorListsWhatThereIs) {
  const auto provider = make_fake_provider({.devices = {device("down0", {v4}, false), device("bare0", {})}});
  const auto missing = open_device(*provider, "mlx5_0");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::not_found);
  const std::string& message = missing.error().message;
  EXPECT_NE(message.find("no RDMA device mlx5_0; there are: down0"), std::string::npos) << message;
  EXPECT_NE(message.find("down)"), std::string::npos) << message;
  EXPECT_NE(message.find("bare0 (no address)"), std::string::npos) << message;
  EXPECT_FALSE(open_device(*provider, ""));
  const auto nothing = make_fake_provider({.devices = {}});
  EXPECT_NE(open_device(*nothing, "").error().message.find("no device at all"), std::string::npos);
}

TEST(ConnectRc, RefusesFamiliesThatCannotMeet) {
  const auto provider = make_fake_provider();
  const auto refused = connect_rc(*provider, nullptr, {.gid = v4}, {.gid = v6}, {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("10.0.0.1 and 2001:db8::1"), std::string::npos);
  EXPECT_FALSE(connect_rc(*provider, nullptr, {.gid = loopback}, {.gid = v4}, {}));
}

// Initiator and responder have limits of their own.
TEST(ConnectRc, TakesTheSmallerReadLimitOfBothEnds) {
  const auto provider = make_fake_provider();
  const auto context = open_device(*provider, "").value();
  const auto pd = alloc_pd(*provider, context.get()).value();
  const auto cq = create_cq(*provider, context.get(), 16, nullptr).value();
  const auto granted = [&](std::uint8_t initiates, std::uint8_t serves, std::uint8_t peer_serves) {
    const auto qp = create_rc_qp(*provider, pd.get(), cq.get(), cq.get(), {}).value();
    ConnectOptions options;
    options.initiator_reads = initiates;
    options.traffic_class = 104;
    const auto connected = connect_rc(*provider, qp.get(), {.gid = v4, .reads = serves},
                                      {.qpn = 9, .gid = v4, .reads = peer_serves}, options);
    EXPECT_TRUE(connected) << connected.error().message;
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(provider->query_qp(qp.get(), &attr, 0xFFFF, &init), 0);
    EXPECT_EQ(attr.max_dest_rd_atomic, serves);
    EXPECT_EQ(attr.ah_attr.grh.traffic_class, 104);
    EXPECT_EQ(attr.ah_attr.grh.hop_limit, 64);
    EXPECT_EQ(attr.ah_attr.is_global, 1);
    return attr.max_rd_atomic;
  };
  EXPECT_EQ(granted(8, 16, 4), 4);
  EXPECT_EQ(granted(2, 16, 4), 2);
  EXPECT_EQ(granted(0, 3, 16), 3) << "as many as it serves";
}

TEST(Mtu, BytesAndEnumAreInverse) {
  for (const std::uint32_t bytes : {256u, 512u, 1024u, 2048u, 4096u}) {
    EXPECT_EQ(mtu_bytes(mtu_enum(bytes)), bytes);
    EXPECT_EQ(mtu_bytes(mtu_enum(bytes + 255)), bytes) << "rounds down";
  }
  EXPECT_EQ(mtu_bytes(static_cast<ibv_mtu>(0)), 0u);
  EXPECT_EQ(mtu_bytes(static_cast<ibv_mtu>(6)), 0u);
}

}  // namespace
}  // namespace beeline::verbs
