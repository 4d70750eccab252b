// For tests: two cards on a network in memory, in virtual time.
#pragma once

#include <memory>
#include <optional>

#include "nic/card_fixture.h"
#include "nic/fake_network.h"

namespace beeline::nic::test {

inline constexpr IpAddress left_address = IpAddress::v4(10, 0, 0, 1);
inline constexpr IpAddress right_address = IpAddress::v4(10, 0, 0, 2);

inline std::unique_ptr<Card> make_card(FakeNetwork& network, std::uint8_t slot, const IpAddress& address,
                                       std::uint32_t mtu = 65536, bool thread = false) {
  const port::Interface interface = interface_with(address, mtu);
  return value_of(Card::create(Config{}, network.make_port(slot), {&interface, 1}, thread));
}

class TwoCards : public ::testing::Test {
 protected:
  void connect_both(const EndOptions& options = {}) {
    left_.emplace(*left_card_, options);
    right_.emplace(*right_card_, options);
    connect(*left_, *right_);
  }
  // Both sides poll; when nothing happens, time passes.
  bool run_until(const std::function<bool()>& done, int rounds = 200000) {
    for (; rounds > 0 && !done(); --rounds) {
      if (left_) left_->poll();
      if (right_) right_->poll();
      network_.advance(10us);
    }
    return done();
  }
  void run_for(int rounds) {
    (void)run_until([] { return false; }, rounds);
  }

  FakeNetwork network_;
  std::unique_ptr<Card> left_card_ = make_card(network_, 1, left_address);
  std::unique_ptr<Card> right_card_ = make_card(network_, 2, right_address);
  std::optional<End> left_, right_;
};

}  // namespace beeline::nic::test
