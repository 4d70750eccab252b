// Several processes on one address and port: every packet reaches its slot's owner.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "base/random.h"
#include "port/udp/test_support.h"

namespace beeline::port::test {
namespace {

using Peers = std::vector<std::unique_ptr<PeerProcess>>;

// Sends `count` packets to each and waits until all have arrived.
class Traffic {
 public:
  explicit Traffic(const IpAddress& address) : address_(address), stranger_(address) {}

  void deliver(Peers& peers, int count) {
    std::map<PeerProcess*, std::uint64_t> before;
    for (const auto& peer : peers) before[peer.get()] = peer->report().mine;
    for (int i = 0; i < count; ++i)
      for (const auto& peer : peers) stranger_.send(address_, packet_for(peer->slot()));
    for (const auto& peer : peers) await(*peer, before[peer.get()] + static_cast<std::uint64_t>(count));
  }

 private:
  static void await(PeerProcess& peer, std::uint64_t wanted) {
    PeerProcess::Report report = peer.report();
    for (int i = 0; i < 3000 && report.mine < wanted; ++i) {
      ::usleep(10'000);
      report = peer.report();
    }
    EXPECT_EQ(report.mine, wanted) << "slot " << int{peer.slot().value};
    EXPECT_EQ(report.not_mine, 0u);
    EXPECT_EQ(report.counters.hand_over_dropped, 0u);
  }

  IpAddress address_;
  Stranger stranger_;
};

std::uint64_t handed_over(Peers& peers) {
  std::uint64_t sum = 0;
  for (const auto& peer : peers) sum += peer->report().counters.handed_over;
  return sum;
}

// True when steering settles: a whole batch without a single hand-over.
bool settles(Traffic& traffic, Peers& peers) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::uint64_t before = handed_over(peers);
    traffic.deliver(peers, 16);
    if (handed_over(peers) == before) return true;
    ::usleep(50'000);
  }
  return false;
}

Peers make_peers(const IpAddress& address, int count) {
  Peers peers;
  for (int i = 0; i < count; ++i) peers.push_back(std::make_unique<PeerProcess>(address));
  return peers;
}

TEST(Sharing, EveryProcessHasASlotOfItsOwn) {
  Peers peers = make_peers(own_address(1), 3);
  EXPECT_NE(peers[0]->slot().value, peers[1]->slot().value);
  EXPECT_NE(peers[1]->slot().value, peers[2]->slot().value);
  EXPECT_NE(peers[0]->slot().value, peers[2]->slot().value);
}

TEST(Sharing, SteeringSettlesAfterJoins) {
  const IpAddress address = own_address(2);
  Traffic traffic(address);
  Peers peers = make_peers(address, 2);
  EXPECT_TRUE(settles(traffic, peers));
  for (int i = 0; i < 3; ++i) peers.push_back(std::make_unique<PeerProcess>(address));
  EXPECT_TRUE(settles(traffic, peers));
}

TEST(Sharing, SteeringSettlesAfterTheFirstOneLeft) {
  const IpAddress address = own_address(3);
  Traffic traffic(address);
  Peers peers = make_peers(address, 4);
  EXPECT_TRUE(settles(traffic, peers));
  peers[0]->kill();  // the kernel moves the last socket into its place
  peers.erase(peers.begin());
  EXPECT_TRUE(settles(traffic, peers));
}

TEST(Sharing, NothingIsLostWhileProcessesComeAndGo) {
  const IpAddress address = own_address(4);
  const std::uint64_t seed = secure_random();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  Prng random(seed);
  Traffic traffic(address);
  Peers peers = make_peers(address, 2);
  for (int step = 0; step < 40 && !::testing::Test::HasFailure(); ++step) {
    if (peers.size() < 2 || (peers.size() < 6 && random.chance(0.5))) {
      peers.push_back(std::make_unique<PeerProcess>(address));
    } else {
      const auto victim = peers.begin() + static_cast<std::ptrdiff_t>(random.below(peers.size()));
      random.chance(0.7) ? (*victim)->kill() : (*victim)->quit();
      peers.erase(victim);
    }
    traffic.deliver(peers, 8);
  }
  EXPECT_TRUE(settles(traffic, peers));
}

// A process that is stopped answers no probes and hands nothing over. One that joins
// must get its packets all the same, without anything but its own wait() to run it.
TEST(Sharing, AStoppedProcessDoesNotKeepOthersFromTheirPackets) {
  const IpAddress address = own_address(9);
  PeerProcess stopped(address);
  stopped.stop();
  // Other slots in between: ours is not by chance the index of our socket.
  const auto second = claim_slot(), third = claim_slot();
  auto port = open_port(address);
  std::array<InPacket, 32> out;
  // Flows of many ports: the kernel's hash would send some to the stopped one.
  for (int flow = 0; flow < 16; ++flow) {
    Stranger stranger(address);
    const TimePoint deadline = port->now() + patience;
    std::size_t got = 0;
    while (got == 0 && port->now() < deadline) {
      stranger.send(address, packet_for(port->slot()));
      port->wait(deadline);
      got = port->receive(out);
    }
    ASSERT_GT(got, 0u) << "flow " << flow;
  }
}

// (Another program on this machine may take a free slot at once: so we ask whose it is.)
TEST(Sharing, KillFreesSlotAndPort) {
  const IpAddress address = own_address(5);
  for (int i = 0; i < 10; ++i) {
    PeerProcess peer(address);
    const pid_t pid = peer.pid();
    EXPECT_EQ(slot_owner(peer.slot()), pid);
    EXPECT_FALSE(port_is_free(address));
    peer.kill();
    EXPECT_NE(slot_owner(peer.slot()), pid);
    EXPECT_TRUE(port_is_free(address));
  }
}

// A forked child that outlives its parent must hold neither slot nor port …
TEST(Sharing, AChildThatAbandonedThePortHoldsNothing) {
  const IpAddress address = own_address(6);
  PeerProcess parent(address);
  const pid_t pid = parent.pid();
  parent.order(PeerProcess::Order::fork_and_abandon);
  parent.kill();
  EXPECT_NE(slot_owner(parent.slot()), pid);
  EXPECT_TRUE(port_is_free(address));
  Peers next = make_peers(address, 1);
  Traffic traffic(address);
  traffic.deliver(next, 64);  // and none vanishes in a socket that nobody reads
  parent.hang_up();
}

// … and one that did not abandon it does: the test above can fail.
TEST(Sharing, AChildThatKeepsThePortHoldsBoth) {
  const IpAddress address = own_address(7);
  PeerProcess parent(address);
  const pid_t pid = parent.pid();
  parent.order(PeerProcess::Order::fork_and_keep);
  parent.kill();
  EXPECT_EQ(slot_owner(parent.slot()), pid);
  EXPECT_FALSE(port_is_free(address));
  parent.hang_up();
}

TEST(Sharing, TheParentGoesOnAfterItsChildAbandoned) {
  const IpAddress address = own_address(8);
  Peers peers = make_peers(address, 2);
  for (const auto& peer : peers) peer->order(PeerProcess::Order::fork_and_abandon);
  Traffic traffic(address);
  traffic.deliver(peers, 64);
  for (const auto& peer : peers) peer->hang_up();
}

}  // namespace
}  // namespace beeline::port::test
