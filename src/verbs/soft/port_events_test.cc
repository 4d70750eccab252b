// Ports whose links and addresses change, as programs learn of it; on a host that the test makes up.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "nic/fake_network.h"
#include "verbs/full_provider.h"

namespace beeline::verbs::soft {
namespace {

constexpr auto first = IpAddress::v4(10, 0, 0, 1), second = IpAddress::v4(10, 0, 0, 2);

class PortEvents : public testing::Test {
 protected:
  void SetUp() override {
    auto port = network_.make_port(1);
    port_ = port.get();
    const auto interfaces = host(true, {first});
    port_->set_interfaces(interfaces);
    auto card = nic::Card::create(Config{}, std::move(port), interfaces);
    ASSERT_TRUE(card);
    card_ = std::move(*card);
    card_->follow_host();
    provider_ = make_full_soft_provider(*card_);
    context_ = open(0);
  }
  void TearDown() override { EXPECT_EQ(provider_->close_device(context_), 0); }

  ibv_context* open(int index) {
    ibv_device** list = provider_->get_device_list(nullptr);
    ibv_context* context = provider_->open_device(list[index]);
    provider_->free_device_list(list);
    EXPECT_NE(context, nullptr);
    fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
    return context;
  }
  // Two interfaces, the second of which never changes.
  static std::vector<port::Interface> host(bool up, std::vector<IpAddress> addresses) {
    port::Interface changing, other;
    changing.name = "one";
    changing.index = 3;
    changing.up = up;
    changing.mtu = 4200;
    changing.addresses = std::move(addresses);
    other = changing;
    other.name = "two";
    other.index = 4;
    other.up = true;
    other.addresses = {IpAddress::v4(10, 0, 1, 1)};
    return {changing, other};
  }
  // The next event of a context, waited for at most 20 s.
  ibv_async_event next(ibv_context* context) {
    ibv_async_event event{};
    event.event_type = IBV_EVENT_CLIENT_REREGISTER;  // none of ours
    pollfd entry{context->async_fd, POLLIN, 0};
    if (poll(&entry, 1, 20000) == 1 && provider_->get_async_event(context, &event) == 0)
      provider_->ack_async_event(&event);
    return event;
  }
  bool quiet(ibv_context* context) {
    ibv_async_event event{};
    return provider_->get_async_event(context, &event) == -1 && errno == EAGAIN;
  }
  ibv_port_attr port_attributes() {
    ibv_port_attr attributes{};
    EXPECT_EQ(provider_->query_port(context_, 1, &attributes), 0);
    return attributes;
  }
  std::string gid(int index) {
    ibv_gid raw{};
    if (provider_->query_gid(context_, 1, index, &raw) != 0) return "none";
    Gid gid;
    std::copy(std::begin(raw.raw), std::end(raw.raw), gid.bytes.begin());
    return to_string(gid);
  }

  nic::test::FakeNetwork network_{nic::test::FakeNetwork::Clock::real};
  nic::test::FakePort* port_ = nullptr;
  std::unique_ptr<nic::Card> card_;
  std::unique_ptr<FullProvider> provider_;
  ibv_context* context_ = nullptr;
};

TEST_F(PortEvents, ALinkThatGoesAndComesIsReported) {
  EXPECT_TRUE(quiet(context_));
  port_->set_interfaces(host(false, {first}));
  ibv_async_event event = next(context_);
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(event.element.port_num, 1);
  EXPECT_EQ(port_attributes().state, IBV_PORT_DOWN);
  port_->set_interfaces(host(true, {first}));
  event = next(context_);
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(event.element.port_num, 1);
  EXPECT_EQ(port_attributes().state, IBV_PORT_ACTIVE);
  EXPECT_TRUE(quiet(context_));
}

TEST_F(PortEvents, AnAddressThatComesAndGoesChangesTheGids) {
  port_->set_interfaces(host(true, {first, second}));
  EXPECT_EQ(next(context_).event_type, IBV_EVENT_GID_CHANGE);
  EXPECT_EQ(port_attributes().gid_tbl_len, 2);
  EXPECT_EQ(gid(1), "10.0.0.2");
  port_->set_interfaces(host(true, {second}));
  EXPECT_EQ(next(context_).event_type, IBV_EVENT_GID_CHANGE);
  EXPECT_EQ(gid(0), "::") << "an empty place reads as zero";
  EXPECT_EQ(gid(1), "10.0.0.2") << "indices stay";
  ibv_gid_entry entry{};
  EXPECT_EQ(provider_->query_gid_ex(context_, 1, 0, &entry), ENODATA);
  EXPECT_EQ(provider_->query_gid_table(context_, &entry, 1, 0, sizeof entry), 1);
  EXPECT_EQ(entry.gid_index, 1u);
  EXPECT_TRUE(quiet(context_));
}

TEST_F(PortEvents, EveryContextOfTheDeviceHearsAndNoOther) {
  ibv_context* const again = open(0);
  ibv_context* const other = open(1);
  port_->set_interfaces(host(false, {first}));
  EXPECT_EQ(next(context_).event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(next(again).event_type, IBV_EVENT_PORT_ERR);
  EXPECT_TRUE(quiet(other));
  EXPECT_EQ(provider_->close_device(again), 0);
  EXPECT_EQ(provider_->close_device(other), 0);
}

TEST_F(PortEvents, WhoFetchesLateLearnsHowThingsAre) {
  for (const bool up : {false, true, false}) {
    port_->set_interfaces(host(up, {first}));
    while ((port_attributes().state == IBV_PORT_ACTIVE) != up) usleep(1000);
  }
  EXPECT_EQ(next(context_).event_type, IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(next(context_).event_type, IBV_EVENT_PORT_ERR) << "the last one";
  EXPECT_TRUE(quiet(context_));
}

}  // namespace
}  // namespace beeline::verbs::soft
