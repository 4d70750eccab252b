// The software card over real sockets, both ends in this process.
#include "base/config.h"
#include "nic/card.h"
#include "port/udp/udp_port.h"
#include "verbs/conformance/conformance.h"
#include "verbs/fake/fake_provider.h"
#include "verbs/joined/joined_provider.h"

namespace beeline::verbs::conformance {
namespace {

class SoftRig : public Rig {
 public:
  static Result<std::unique_ptr<Rig>> make() { return make(Lane::wire); }
  static Result<std::unique_ptr<Rig>> make_local() { return make(Lane::local); }
  static Result<std::unique_ptr<Rig>> make(Lane lane) {
    auto rig = std::make_unique<SoftRig>();
    Config config;
    config.lane = lane;
    BEELINE_TRY(const auto interfaces, port::list_interfaces());
    BEELINE_TRY(auto port, port::make_udp_port());
    BEELINE_TRY(rig->card_, nic::Card::create(config, std::move(port), interfaces));
    rig->provider_ = make_soft_provider(*rig->card_);
    return rig;
  }
  static Result<std::unique_ptr<Rig>> make_joined() {
    BEELINE_TRY(auto made, make());
    auto* rig = static_cast<SoftRig*>(made.get());
    std::vector<std::unique_ptr<Provider>> providers;
    providers.push_back(std::move(rig->provider_));
    providers.push_back(make_fake_provider({.devices = {{.name = "fake0", .gids = {}}}}));
    rig->provider_ = make_joined_provider(std::move(providers));
    return made;
  }
  Provider& provider() override { return *provider_; }

 private:
  std::unique_ptr<nic::Card> card_;
  std::unique_ptr<Provider> provider_;
};

const auto soft = testing::Values(RigFactory{"soft", [] { return SoftRig::make(); }},
                                  RigFactory{"shared_memory", SoftRig::make_local},
                                  RigFactory{"joined", SoftRig::make_joined});
std::string name_of(const testing::TestParamInfo<RigFactory>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Card, Objects, soft, name_of);
INSTANTIATE_TEST_SUITE_P(Card, Messages, soft, name_of);
INSTANTIATE_TEST_SUITE_P(Card, Failures, soft, name_of);
INSTANTIATE_TEST_SUITE_P(Card, Events, soft, name_of);

// Only this provider keeps a list of what is alive.
TEST(SoftProvider, WhatIsFreedTwiceOrForeignIsRefused) {
  auto rig = SoftRig::make();
  ASSERT_TRUE(rig) << rig.error().message;
  Provider& provider = (*rig)->provider();
  auto context = open_device(provider, "");
  ASSERT_TRUE(context) << context.error().message;
  ibv_pd* pd = provider.alloc_pd(context->get());
  ASSERT_NE(pd, nullptr);
  EXPECT_EQ(provider.dealloc_pd(pd), 0);
  EXPECT_EQ(provider.dealloc_pd(pd), EINVAL);
  ibv_cq foreign{};
  foreign.context = context->get();
  EXPECT_EQ(provider.destroy_cq(&foreign), EINVAL);
  ibv_context stranger{};
  EXPECT_EQ(provider.alloc_pd(&stranger), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(SoftProvider, ErrorsCarryTheCardsSentence) {
  auto rig = SoftRig::make();
  ASSERT_TRUE(rig) << rig.error().message;
  Provider& provider = (*rig)->provider();
  const auto context = open_device(provider, "").value();
  const auto pd = alloc_pd(provider, context.get()).value();
  const auto cq = create_cq(provider, context.get(), 16, nullptr).value();
  const auto qp = create_rc_qp(provider, pd.get(), cq.get(), cq.get(), {.send_depth = 1u << 20});
  ASSERT_FALSE(qp);
  EXPECT_NE(qp.error().message.find("at most"), std::string::npos) << qp.error().message;
}

}  // namespace
}  // namespace beeline::verbs::conformance
