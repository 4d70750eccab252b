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

// Peers that run, and peers that were stopped, of either kind.
class Crowd {
 public:
  Crowd(const IpAddress& address, std::uint64_t seed) : address_(address), random_(seed) {
    for (int i = 0; i < flows; ++i) strangers_.emplace_back(address);
  }
  ~Crowd() { everybody_goes_on(); }

  void step() {
    const std::uint64_t dice = random_.below(10);
    if (running_.size() < 2 || (dice < 4 && running_.size() + stopped_.size() < 10)) return join();
    if (dice < 6) return (void)take(running_)->kill();
    if (dice < 7) return (void)take(running_)->quit();
    if (dice < 8 && !stopped_.empty()) return (void)take(stopped_)->kill();
    if (dice < 9 && stopped_.size() < 4) {
      stopped_.push_back(take(running_));
      return stopped_.back()->stop();
    }
    if (!stopped_.empty()) go_on();
  }
  void everybody_goes_on() {
    while (!stopped_.empty()) go_on();
  }
  // True as soon as one packet of every flow reaches every running peer, without repeating any. Twice in a
  // row, because late ones may come that somebody held while it was stopped.
  bool everything_arrives() {
    int in_a_row = 0;
    for (int attempt = 0; attempt < attempts_max && in_a_row < 2; ++attempt)
      in_a_row = batch_arrives() ? in_a_row + 1 : 0;
    return in_a_row == 2;
  }
  // True when nobody asks anything any more while packets flow as they should.
  bool falls_silent() {
    for (int attempt = 0; attempt < attempts_max; ++attempt) {
      const std::uint64_t before = rounds();
      ::usleep(1'000'000);
      if (rounds() == before) return batch_arrives() && rounds() == before;
    }
    return false;
  }

 private:
  static constexpr int flows = 8;
  static constexpr int attempts_max = 30;

  void join() {
    running_.push_back(std::make_unique<PeerProcess>(
        address_, random_.chance(0.5) ? IcrcCheck::plain : IcrcCheck::automatic));
  }
  void go_on() {
    stopped_.back()->go_on();
    running_.push_back(std::move(stopped_.back()));
    stopped_.pop_back();
  }
  std::unique_ptr<PeerProcess> take(Peers& from) {
    const auto chosen = from.begin() + static_cast<std::ptrdiff_t>(random_.below(from.size()));
    auto peer = std::move(*chosen);
    from.erase(chosen);
    return peer;
  }
  std::uint64_t rounds() {
    std::uint64_t sum = 0;
    for (const auto& peer : running_) sum += peer->report().counters.learning_rounds;
    return sum;
  }
  bool batch_arrives() {
    std::vector<std::uint64_t> wanted;
    for (const auto& peer : running_) {
      wanted.push_back(peer->report().mine + flows);
      sent_[peer->slot().value] += flows;
    }
    for (Stranger& stranger : strangers_)
      for (const auto& peer : running_) stranger.send(address_, packet_for(peer->slot()));
    bool all = false;
    for (int look = 0; look < 50 && !all; ++look) {
      ::usleep(10'000);
      all = true;
      for (std::size_t i = 0; i < running_.size(); ++i) all = all && running_[i]->report().mine >= wanted[i];
    }
    for (const auto& peer : running_)
      EXPECT_LE(peer->report().mine, sent_[peer->slot().value]) << "some came twice";
    return all;
  }

  IpAddress address_;
  Prng random_;
  std::vector<Stranger> strangers_;
  Peers running_, stopped_;
  // To each slot, since the beginning: who was stopped may hold packets for the slot's last owner.
  std::map<std::uint8_t, std::uint64_t> sent_;
};

// Whatever happened before, and whoever is stopped: once nobody joins or leaves, every packet reaches its
// owner, and then nobody asks any more.
TEST(Sharing, SettlesAfterAnythingThoughSomeAreStopped) {
  const std::uint64_t seed = secure_random();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  Crowd crowd(own_address(10), seed);
  for (int phase = 0; phase < 3; ++phase) {
    for (int step = 0; step < 25; ++step) crowd.step();
    ASSERT_TRUE(crowd.everything_arrives()) << "phase " << phase;
  }
  EXPECT_TRUE(crowd.falls_silent());
  crowd.everybody_goes_on();
  EXPECT_TRUE(crowd.everything_arrives());
}

// Its index shifts when the first one dies, and a stopped one gets its packets then: nothing but
// the end of that connection tells it.
TEST(Sharing, AnIndexThatShiftsUnderAStoppedProcessIsLearnedAgain) {
  const IpAddress address = own_address(14);
  std::vector<Stranger> strangers;
  strangers.reserve(16);
  for (int flow = 0; flow < 16; ++flow) strangers.emplace_back(address);
  PeerProcess first(address), second(address);
  PeerProcess last(address);
  ::usleep(1'000'000);  // it has learned, and confirmed
  first.stop();
  second.stop();
  first.kill();
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::uint64_t before = last.report().mine;
    for (Stranger& stranger : strangers) stranger.send(address, packet_for(last.slot()));
    ::usleep(100'000);
    if (last.report().mine == before + strangers.size()) return;
  }
  FAIL() << "packets still go elsewhere";
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
