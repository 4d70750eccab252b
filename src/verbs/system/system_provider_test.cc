// The system provider over libraries that only look like libibverbs, so that the outcome does not
// depend on what this machine has.
#include "verbs/system/system_provider.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "verbs/common/device_shell.h"
#include "verbs/system/fake_library/settings.h"
#include "verbs/verbs.h"

namespace beeline::verbs {
namespace {

constexpr const char* not_empty = "/";

class SystemProviderTest : public testing::Test {
 protected:
  FakeLibrarySettings& settings_ = fresh_fake_library(FAKE_IBVERBS_CURRENT);
  std::unique_ptr<Provider> provider_ = make_system_provider({FAKE_IBVERBS_CURRENT, not_empty});
};

std::string listing_error(const char* library) {
  const auto provider = make_system_provider({library, not_empty});
  const auto devices = summarize_devices(*provider);
  return devices ? "" : devices.error().message;
}

TEST(SystemLibrary, IsNotEvenLoadedWhereThereIsNoDevice) {
  const auto provider = make_system_provider({"/nowhere/libibverbs.so.1", "/nowhere"});
  const auto devices = summarize_devices(*provider);
  ASSERT_TRUE(devices) << devices.error().message;
  EXPECT_TRUE(devices->empty());
  EXPECT_FALSE(open_device(*provider, ""));
}

TEST(SystemLibrary, ThatIsMissingIsNamedWithTheRemedy) {
  const std::string message = listing_error("/nowhere/libibverbs.so.1");
  EXPECT_NE(message.find("/nowhere/libibverbs.so.1 cannot be loaded"), std::string::npos) << message;
  EXPECT_NE(message.find("install libibverbs"), std::string::npos) << message;
}

TEST(SystemLibrary, ThatIsTooOldIsNamedWithTheSymbol) {
  const std::string message = listing_error(FAKE_IBVERBS_ANCIENT);
  EXPECT_NE(message.find("no _ibv_query_gid_ex@IBVERBS_1.11: install rdma-core 32"), std::string::npos)
      << message;
}

TEST(SystemLibrary, WithoutTheNewestFunctionsStillWorks) {
  fresh_fake_library(FAKE_IBVERBS_OLD);
  const auto provider = make_system_provider({FAKE_IBVERBS_OLD, not_empty});
  const auto context = open_device(*provider, "").value();
  const auto pd = alloc_pd(*provider, context.get()).value();
  const auto cq = create_cq(*provider, context.get(), 16, nullptr).value();
  const auto qp = create_rc_qp(*provider, pd.get(), cq.get(), cq.get(), {}).value();
  EXPECT_EQ(provider->query_qp_data_in_order(qp.get(), IBV_WR_RDMA_WRITE, 0), 0) << "promises nothing";
  std::byte memory[64];
  const auto region = register_memory(*provider, pd.get(), memory, sizeof memory,
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  EXPECT_TRUE(region) << "a permission that nobody can use is dropped";
}

TEST_F(SystemProviderTest, AsksForForkSafetyOnceAndPassesAnswersOn) {
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(summarize_devices(*provider_));
  EXPECT_EQ(settings_.forks_prepared, 1);
  const auto context = open_device(*provider_, "fake0").value();
  const auto pd = alloc_pd(*provider_, context.get()).value();
  const auto cq = create_cq(*provider_, context.get(), 16, nullptr).value();
  const auto qp = create_rc_qp(*provider_, pd.get(), cq.get(), cq.get(), {}).value();
  EXPECT_EQ(provider_->query_qp_data_in_order(qp.get(), IBV_WR_RDMA_WRITE, 0), 1);
}

TEST_F(SystemProviderTest, OptionalRightsGoToTheFunctionThatKnowsThem) {
  const auto context = open_device(*provider_, "").value();
  const auto pd = alloc_pd(*provider_, context.get()).value();
  std::byte memory[64];
  const auto plain =
      register_memory(*provider_, pd.get(), memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE).value();
  EXPECT_EQ(settings_.optional_registrations, 0);
  const auto relaxed = register_memory(*provider_, pd.get(), memory, sizeof memory,
                                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  ASSERT_TRUE(relaxed) << relaxed.error().message;
  EXPECT_EQ(settings_.optional_registrations, 1);
}

TEST_F(SystemProviderTest, PortsOfContextsThatCannotBeAskedDirectly) {
  settings_.fabric.devices[0].active_mtu_bytes = 2048;
  settings_.old_contexts = true;
  const auto context = open_device(*provider_, "").value();
  ibv_port_attr port;
  std::memset(&port, 0xEE, sizeof port);
  ASSERT_EQ(provider_->query_port(context.get(), 1, &port), 0);
  EXPECT_EQ(mtu_bytes(port.active_mtu), 2048u);
  EXPECT_EQ(port.port_cap_flags2, 0) << "what the old function does not know is zero";
}

TEST_F(SystemProviderTest, NoRdmaInTheKernelIsNoDevice) {
  settings_.list_errno = ENOSYS;
  const auto devices = summarize_devices(*provider_);
  ASSERT_TRUE(devices) << devices.error().message;
  EXPECT_TRUE(devices->empty());
  settings_.list_errno = EPERM;
  EXPECT_FALSE(summarize_devices(*provider_));
}

TEST_F(SystemProviderTest, ADeviceThatMayNotBeOpenedSaysWhatToLookAt) {
  settings_.open_errno = EACCES;
  const auto context = open_device(*provider_, "fake0");
  ASSERT_FALSE(context);
  EXPECT_NE(context.error().message.find("/dev/infiniband/fake0"), std::string::npos)
      << context.error().message;
  EXPECT_FALSE(open_device(*provider_, "")) << "and is not chosen";
  const auto devices = summarize_devices(*provider_).value();
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_NE(devices[0].trouble.find("may not open"), std::string::npos);
}

TEST_F(SystemProviderTest, TheLibrarysWarningsStayAwayFromTheTerminal) {
  settings_.prints_warnings = true;
  testing::internal::CaptureStderr();
  const bool listed = summarize_devices(*provider_).has_value();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "somebody else's line\n");
  EXPECT_TRUE(listed);
}

}  // namespace
}  // namespace beeline::verbs
