#include "verbs/joined/joined_provider.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verbs/fake/fake_provider.h"
#include "verbs/system/system_provider.h"
#include "verbs/verbs.h"

namespace beeline::verbs {
namespace {

const Gid routable = Gid::v4(10, 0, 0, 1), loopback = Gid::v4(127, 0, 0, 1);
const Gid link_local = *parse_address("fe80::1");

FakeDevice device(std::string name, std::vector<Gid> gids, bool active = true) {
  return {.name = std::move(name), .active = active, .gids = std::move(gids)};
}

std::unique_ptr<Provider> join(std::vector<FakeDevice> first, std::vector<FakeDevice> second) {
  std::vector<std::unique_ptr<Provider>> providers;
  providers.push_back(make_fake_provider({.devices = std::move(first)}));
  providers.push_back(make_fake_provider({.devices = std::move(second)}));
  return make_joined_provider(std::move(providers));
}

std::string chosen(std::vector<FakeDevice> hardware, std::vector<FakeDevice> bees) {
  const auto joined = join(std::move(hardware), std::move(bees));
  const auto context = open_device(*joined, "");
  return context ? (*context)->device->name : "";
}

TEST(Joined, ListsTheFirstProvidersDevicesFirst) {
  const auto joined = join({device("mlx5_0", {routable})}, {device("bee0", {routable}), device("bee1", {})});
  const auto named = [](const char* name) { return testing::Field(&DeviceSummary::name, name); };
  EXPECT_THAT(summarize_devices(*joined).value(),
              testing::ElementsAre(named("mlx5_0"), named("bee0"), named("bee1")));
}

TEST(Joined, HardwareIsChosenWhereItCanBeUsedElseTheBee) {
  const std::vector<FakeDevice> bees = {device("bee0", {routable}), device("bee1", {loopback})};
  EXPECT_EQ(chosen({device("mlx5_0", {routable})}, bees), "mlx5_0");
  EXPECT_EQ(chosen({device("mlx5_0", {routable}, false), device("mlx5_1", {routable})}, bees), "mlx5_1");
  EXPECT_EQ(chosen({device("mlx5_0", {routable}, false)}, bees), "bee0") << "its link is down";
  EXPECT_EQ(chosen({device("mlx5_0", {})}, bees), "bee0") << "it has no address";
  EXPECT_EQ(chosen({device("mlx5_0", {link_local})}, bees), "bee0") << "nobody else reaches it";
  EXPECT_EQ(chosen({device("mlx5_0", {link_local})}, {device("bee0", {loopback})}), "mlx5_0");
  EXPECT_EQ(chosen({}, {device("bee0", {loopback}), device("bee1", {link_local})}), "bee1");
  EXPECT_EQ(chosen({}, {device("bee0", {loopback})}), "bee0");
  EXPECT_EQ(chosen({}, {}), "");
}

TEST(Joined, OtherNetworksAndGidTypesAreNeverChosen) {
  const std::vector<FakeDevice> bees = {device("bee0", {routable})};
  FakeDevice old = device("mlx4_0", {routable});
  old.gid_type = IBV_GID_TYPE_ROCE_V1;
  EXPECT_EQ(chosen({old}, bees), "bee0");
  FakeDevice infiniband = device("mlx5_0", {link_local});
  infiniband.link_layer = IBV_LINK_LAYER_INFINIBAND;
  infiniband.gid_type = IBV_GID_TYPE_IB;
  infiniband.active_width = 2;
  infiniband.active_speed = 32;
  EXPECT_EQ(chosen({infiniband}, bees), "bee0");

  const auto joined = join({old, infiniband}, bees);
  const auto summaries = summarize_devices(*joined).value();
  EXPECT_TRUE(summaries[0].gids.empty());
  ASSERT_EQ(summaries[0].other_gids.size(), 1u);
  EXPECT_STREQ(gid_type_name(summaries[0].other_gids[0].type), "RoCE v1");
  EXPECT_EQ(summaries[1].link, "InfiniBand");
  EXPECT_EQ(summaries[1].gbit_per_s, 100);
  const auto context = open_device(*joined, "mlx5_0").value();
  const auto gid = choose_gid(*joined, context.get(), 1, std::nullopt);
  ASSERT_FALSE(gid);
  EXPECT_THAT(gid.error().message, testing::HasSubstr("mlx5_0 is InfiniBand, not Ethernet"));
}

TEST(Joined, ACallGoesToTheProviderOfItsObject) {
  std::vector<std::unique_ptr<Provider>> providers;
  auto a = make_fake_provider({.devices = {device("a0", {routable})}, .data_in_order = true});
  auto b = make_fake_provider({.devices = {device("b0", {routable})}, .data_in_order = false});
  FakeProvider *const first = a.get(), *const second = b.get();
  providers.push_back(std::move(a));
  providers.push_back(std::move(b));
  const auto joined = make_joined_provider(std::move(providers));
  for (const char* name : {"a0", "b0"}) {
    const auto context = open_device(*joined, name).value();
    const auto pd = alloc_pd(*joined, context.get()).value();
    const auto cq = create_cq(*joined, context.get(), 16, nullptr).value();
    const auto qp = create_rc_qp(*joined, pd.get(), cq.get(), cq.get(), {}).value();
    const bool is_first = std::string(name) == "a0";
    EXPECT_EQ(first->queue_pairs().size(), is_first ? 1u : 0u);
    EXPECT_EQ(second->queue_pairs().size(), is_first ? 0u : 1u);
    EXPECT_EQ(joined->query_qp_data_in_order(qp.get(), IBV_WR_RDMA_WRITE, 0), is_first ? 1 : 0);
  }
}

TEST(Joined, OneThatCannotListDoesNotHideTheOther) {
  std::vector<std::unique_ptr<Provider>> providers;
  providers.push_back(make_system_provider({"/nowhere/libibverbs.so.1", "/"}));
  providers.push_back(make_fake_provider({.devices = {device("bee0", {routable})}}));
  const auto joined = make_joined_provider(std::move(providers));
  EXPECT_STREQ(open_device(*joined, "").value()->device->name, "bee0");
  EXPECT_EQ(summarize_devices(*joined).value().size(), 1u);
  EXPECT_EQ(summarize_devices(*joined).value()[0].provider, "fake");
}

}  // namespace
}  // namespace beeline::verbs
