// Devices whose links and addresses come and go.
#include "nic/card_fixture.h"
#include "nic/fake_network.h"
#include "nic/two_cards.h"

namespace beeline::nic::test {
namespace {

constexpr auto first = IpAddress::v4(10, 0, 0, 1), second = IpAddress::v4(10, 0, 0, 2),
               third = IpAddress::v4(10, 0, 0, 3), fourth = IpAddress::v4(10, 0, 0, 4);

port::Interface interface_of(std::vector<IpAddress> addresses, int index = 5) {
  port::Interface interface = interface_with(first);
  interface.index = index;
  interface.addresses = std::move(addresses);
  return interface;
}

TEST(DeviceUpdate, GidsKeepTheirIndexAndNewOnesFillTheGaps) {
  Device device = make_devices(std::vector{interface_of({first, second})})[0];
  const auto update = [&](std::vector<IpAddress> addresses) {
    return update_device(device, std::vector{interface_of(std::move(addresses))}).gids;
  };
  EXPECT_FALSE(update({second, first})) << "the system's order says nothing";
  EXPECT_TRUE(update({second}));
  EXPECT_EQ(device.gids, (std::vector<Gid>{{}, second}));
  EXPECT_TRUE(update({third, fourth, second}));
  EXPECT_EQ(device.gids, (std::vector<Gid>{third, second, fourth}));
  EXPECT_TRUE(update({}));
  EXPECT_EQ(device.gids, std::vector<Gid>(3));
  EXPECT_TRUE(device.active) << "a link needs no address";
}

TEST(DeviceUpdate, TheLinkAndItsMtuAreFollowed) {
  Device device = make_devices(std::vector{interface_of({first})})[0];
  port::Interface now = interface_of({first});
  EXPECT_FALSE(update_device(device, std::vector{now}).state);
  now.up = false;
  EXPECT_TRUE(update_device(device, std::vector{now}).state);
  EXPECT_FALSE(device.active);
  now.mtu = 1500;
  const DeviceChange change = update_device(device, std::vector{now});
  EXPECT_FALSE(change.state || change.gids);
  EXPECT_EQ(device.active_mtu_bytes, 1024u);
}

TEST(DeviceUpdate, AnInterfaceThatIsMadeAnewIsTheOldDevices) {
  Device device = make_devices(std::vector{interface_of({first}, 5)})[0];
  port::Interface other = interface_of({second}, 6);
  other.name = "other0";
  DeviceChange change = update_device(device, std::vector{other});
  EXPECT_TRUE(change.state && change.gids) << "gone";
  EXPECT_FALSE(device.active);
  change = update_device(device, std::vector{other, interface_of({first}, 7)});
  EXPECT_TRUE(change.state && change.gids);
  EXPECT_EQ(device.gids, std::vector<Gid>{first});
  EXPECT_EQ(device.interface.index, 7);
  other.index = 7;
  EXPECT_TRUE(update_device(device, std::vector{other}).gids) << "renamed: the index counts";
}

// What the card said, and to whom.
struct Heard {
  std::mutex mutex;
  std::condition_variable something;
  std::vector<std::pair<int, PortEvent>> events;

  static void note(void* self, int device, PortEvent event) {
    auto* heard = static_cast<Heard*>(self);
    const std::lock_guard lock(heard->mutex);
    heard->events.emplace_back(device, event);
    heard->something.notify_all();
  }
  std::vector<std::pair<int, PortEvent>> take(std::size_t count) {
    std::unique_lock lock(mutex);
    something.wait_for(lock, std::chrono::seconds(20), [&] { return events.size() >= count; });
    return std::exchange(events, {});
  }
};

class CardDevices : public ::testing::Test {
 protected:
  CardDevices() {
    auto port = network_.make_port(1);
    port_ = port.get();
    const auto interfaces = std::vector{interface_of({first}, 5), interface_of({fourth}, 6)};
    port_->set_interfaces(interfaces);
    card_ = value_of(Card::create(Config{}, std::move(port), interfaces, true));
    card_->follow_host();
    card_->add_port_sink(&Heard::note, &heard_);
  }
  void set(bool up, std::vector<IpAddress> addresses) {
    auto changed = interface_of(std::move(addresses), 5);
    changed.up = up;
    port_->set_interfaces({changed, interface_of({fourth}, 6)});
  }
  using Events = std::vector<std::pair<int, PortEvent>>;

  FakeNetwork network_{FakeNetwork::Clock::real};
  FakePort* port_ = nullptr;
  Heard heard_;
  std::unique_ptr<Card> card_;
};

TEST_F(CardDevices, TellOfLinksAndGids) {
  set(false, {first});
  EXPECT_EQ(heard_.take(1), (Events{{0, PortEvent::error}}));
  EXPECT_FALSE(card_->device(0).active);
  set(true, {first, second});
  EXPECT_EQ(heard_.take(2), (Events{{0, PortEvent::active}, {0, PortEvent::gids_changed}}));
  EXPECT_EQ(card_->device(0).gids, (std::vector<Gid>{first, second}));
  card_->remove_port_sink(&heard_);
  set(false, {});
  while (card_->device(0).active) std::this_thread::yield();
  EXPECT_TRUE(heard_.events.empty());
}

TEST_F(CardDevices, AnEmptyPlaceIsNoAddressToSendFrom) {
  set(true, {});
  (void)heard_.take(1);
  AddressVector address;
  address.destination = second;
  EXPECT_EQ(card_->resolve_path(0, address).error().code, Errc::not_found);
  set(true, {second});
  (void)heard_.take(1);
  const auto path = card_->resolve_path(0, address);
  ASSERT_TRUE(path);
  EXPECT_EQ(path->local, second);
}

TEST_F(CardDevices, DatagramsToANewAddressArrive) {
  EndOptions options;
  options.type = proto::QpType::ud;
  End receiver(*card_, options), sender(*card_, options);
  receiver.open_for_datagrams();
  sender.open_for_datagrams();
  set(true, {first, third});
  (void)heard_.take(1);
  AddressVector address;
  address.destination = third;
  ASSERT_EQ(receiver.receive(1, 0, 200), proto::PostResult::ok);
  const proto::DatagramTarget target{value_of(card_->resolve_path(0, address)), receiver.address().qpn,
                                     End::qkey};
  ASSERT_EQ(sender.send_datagram(1, 0, 16, target), proto::PostResult::ok);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (receiver.done.empty() && std::chrono::steady_clock::now() < end) receiver.poll();
  EXPECT_EQ(receiver.done.size(), 1u);
}

}  // namespace
}  // namespace beeline::nic::test
