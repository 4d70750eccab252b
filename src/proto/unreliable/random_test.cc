// Random work over a wire that loses, repeats, delays and falsifies: what is delivered is right and whole,
// completions come once and in order.

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>

#include "proto/testing/seeds.h"
#include "proto/testing/unreliable_solo.h"

namespace beeline::proto::testing {
namespace {

constexpr std::uint32_t grh_area = 40;
constexpr std::uint32_t slot_bytes = 8192;  // of a receive request
constexpr std::uint64_t slots = 8;

// One side sends numbered messages, the other has receives. A message's bytes follow from its number, which
// its immediate carries.
class Traffic {
 public:
  Traffic(QpType type, std::uint64_t seed, bool shared)
      : type_(type), random_(seed * 77), shared_(slots, 2, no_limit, nullptr), pair_(options(seed, shared)) {
    pair_.memory(0).add(local_key, test_domain, local_base, std::size_t{slot_bytes} * slots,
                        Access::local_write);
    pair_.memory(1).add(local_key, test_domain, local_base, std::size_t{slot_bytes} * slots,
                        Access::local_write);
    pair_.memory(1).add(remote_key, test_domain, remote_base, std::size_t{slot_bytes} * slots,
                        Access::local_write | Access::remote_write);
    use_shared_ = shared;
  }

  void run() {
    for (int i = 0; i < 400; ++i) {
      if (random_.chance(0.4)) post_receive();
      if (random_.chance(0.4)) post_send();
      if (random_.chance(0.7)) pair_.step();
      collect();
      if (::testing::Test::HasFailure()) return;
    }
    pair_.settle();
    collect();
    EXPECT_TRUE(awaited_.empty()) << "a send without a completion";
    EXPECT_EQ(pair_.state(0), QpState::rts);
    EXPECT_EQ(pair_.state(1), QpState::rts);
    // Nothing that was posted is lost: what was not used is flushed, in order.
    QpAttr attributes;
    attributes.state = QpState::err;
    ASSERT_TRUE(pair_.qp(1).modify(pair_.now(), attributes, attr::state));
    for (const Completion& completion : pair_.poll_all(1)) take_receive(completion.wr_id);
    std::uint64_t wr_id = 0;
    std::array<Sge, max_sge> sges;
    for (std::size_t count = 0; shared_.take(wr_id, sges, count);) take_receive(wr_id);
    EXPECT_TRUE(receives_.empty());
  }
  std::size_t delivered() const { return delivered_; }
  std::size_t sent() const { return next_message_; }

 private:
  PairOptions options(std::uint64_t seed, bool shared) {
    Prng random(seed);
    PairOptions options = unreliable_options(type_);
    options.limits.send_depth = slots;
    options.limits.receive_depth = slots;
    options.shared_receives = {nullptr, shared ? &shared_ : nullptr};
    options.attributes.path_mtu_bytes = 256u << random.below(5);
    const auto rate = [&] { return random.chance(0.5) ? 0.0 : static_cast<double>(random.below(21)) / 100; };
    options.faults = {rate(), rate(), rate(), rate(), 0};
    options.socket_refusal = rate();
    options.seed = seed;
    return options;
  }

  static std::byte byte_of(std::uint32_t message, std::uint32_t i) {
    return std::byte{static_cast<std::uint8_t>(message * 131 + i * 7 + i / 256)};
  }

  void post_receive() {
    const std::uint64_t id = next_receive_;
    const std::uint64_t base = local_base + id % slots * slot_bytes;
    const std::array<Sge, 2> sges{Sge{base, 100, local_key}, Sge{base + 100, slot_bytes - 100, local_key}};
    const RecvWr wr{id, sges};
    if (receives_.size() >= slots) return;
    const PostResult result = use_shared_ ? shared_.post(wr) : pair_.post_recv(1, wr);
    if (result == PostResult::queue_full) return;
    ASSERT_EQ(result, PostResult::ok);
    receives_.push_back(id);
    ++next_receive_;
  }

  void post_send() {
    const std::uint32_t number = next_message_;
    const std::uint64_t slot = number % slots;
    if (awaited_.contains(number - static_cast<std::uint32_t>(slots))) return;  // its bytes are in use
    const std::uint32_t most = type_ == QpType::ud ? 4096 : slot_bytes;
    const std::uint32_t length = random_.chance(0.3) ? static_cast<std::uint32_t>(random_.below(64))
                                                     : static_cast<std::uint32_t>(random_.below(most + 1));
    const std::uint64_t offset = slot * slot_bytes;
    auto& bytes = pair_.memory(0).find(local_key)->bytes;
    for (std::uint32_t i = 0; i < length; ++i) bytes[offset + i] = byte_of(number, i);
    const DatagramTarget target = target_of(qpn_of(1), random_.chance(0.5) ? own_qkey : 0x8000'0000);
    const Sge sge{local_base + offset, length, local_key};
    const bool write = type_ == QpType::uc && random_.chance(0.4);
    SendWr wr;
    wr.wr_id = number;
    wr.opcode = write ? WrOpcode::write_imm : WrOpcode::send_imm;
    wr.signaled = true;
    wr.immediate = number;
    wr.remote_address = remote_base + offset;
    wr.rkey = remote_key;
    wr.sges = std::span(&sge, 1);
    wr.target = &target;
    const PostResult result = pair_.post_send(0, wr);
    if (result == PostResult::queue_full) return;
    ASSERT_EQ(result, PostResult::ok);
    lengths_[number] = {length, write};
    awaited_.insert(number);
    ++next_message_;
  }

  void collect() {
    for (const Completion& completion : pair_.poll_all(0)) {
      ASSERT_FALSE(awaited_.empty()) << "one completion too many";
      EXPECT_EQ(completion.wr_id, *awaited_.begin()) << "out of order";
      EXPECT_EQ(completion.status, WcStatus::success);
      awaited_.erase(awaited_.begin());
    }
    for (const Completion& completion : pair_.poll_all(1)) {
      take_receive(completion.wr_id);
      check_delivery(completion);
    }
  }

  void take_receive(std::uint64_t wr_id) {
    ASSERT_FALSE(receives_.empty()) << "a receive completed twice";
    EXPECT_EQ(wr_id, receives_.front()) << "out of order";
    receives_.pop_front();
  }

  void check_delivery(const Completion& completion) {
    ASSERT_EQ(completion.status, WcStatus::success);
    ASSERT_TRUE(completion.has_immediate);
    const std::uint32_t number = completion.immediate;
    ASSERT_TRUE(lengths_.contains(number)) << "a message that nobody sent";
    const auto [length, write] = lengths_[number];
    const std::uint32_t skip = type_ == QpType::ud ? grh_area : 0;
    EXPECT_EQ(completion.byte_length, length + skip);
    EXPECT_EQ(completion.opcode, write ? WcOpcode::receive_write_imm : WcOpcode::receive);
    EXPECT_EQ(completion.has_grh, type_ == QpType::ud);
    ++delivered_;
    if (write) return;  // a later one may have been written over it meanwhile
    const auto& bytes = pair_.memory(1).find(local_key)->bytes;
    const std::uint64_t offset = completion.wr_id % slots * slot_bytes + skip;
    for (std::uint32_t i = 0; i < length; ++i)
      ASSERT_EQ(bytes[offset + i], byte_of(number, i)) << "message " << number << " byte " << i;
  }

  struct Sent {
    std::uint32_t length;
    bool write;
  };

  QpType type_;
  Prng random_;
  SharedReceiveQueue shared_;
  WirePair pair_;
  bool use_shared_ = false;
  std::deque<std::uint64_t> receives_;
  std::set<std::uint32_t> awaited_;
  std::map<std::uint32_t, Sent> lengths_;
  std::uint64_t next_receive_ = 0;
  std::uint32_t next_message_ = 0;
  std::size_t delivered_ = 0;
};

void run_seeds(QpType type, bool shared) {
  const std::uint64_t count = seed_count(150, 20'000, "about 160 messages over a faulty wire");
  std::size_t delivered = 0, sent = 0;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Traffic traffic(type, seed, shared);
    traffic.run();
    delivered += traffic.delivered();
    sent += traffic.sent();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(sent, count * 50);
  EXPECT_GT(delivered, sent / 4) << "too little arrived to mean anything";
}

TEST(UnreliableRandom, ConnectionsDeliverWholeMessages) { run_seeds(QpType::uc, false); }
TEST(UnreliableRandom, ConnectionsDeliverWholeMessagesToASharedQueue) { run_seeds(QpType::uc, true); }
TEST(UnreliableRandom, DatagramsArriveWhole) { run_seeds(QpType::ud, false); }
TEST(UnreliableRandom, DatagramsArriveWholeAtASharedQueue) { run_seeds(QpType::ud, true); }

// Any packet at any time: nothing outside of what is open to the peer changes, every request completes at
// most once, and nothing is sent but what was posted.
TEST(UnreliableHostilePeer, CannotDoMoreThanItMay) {
  const std::uint64_t count = seed_count(300, 30'000, "100 forged packets between honest work");
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng random(seed);
    UnreliableSolo solo(random.chance(0.7) ? QpType::uc : QpType::ud);
    const auto local = solo.memory.find(local_key)->bytes;
    const auto read_only = solo.memory.find(read_only_key)->bytes;
    const auto foreign = solo.memory.find(foreign_key)->bytes;
    std::set<std::uint64_t> completed;
    std::uint64_t next_id = 1;
    std::size_t posted = 0;
    for (int i = 0; i < 100; ++i) {
      if (random.chance(0.3)) solo.receive(static_cast<std::uint32_t>(random.below(3000)), next_id++);
      if (random.chance(0.1) && solo.post(WrOpcode::send, 4, next_id++) == PostResult::ok) ++posted;
      const auto table = wire::opcode_table();
      const wire::OpcodeInfo& row = table[random.below(table.size())];
      wire::Headers headers = Solo::header(row.opcode, first_received + static_cast<std::uint32_t>(i));
      if (random.chance(0.2)) headers.bth.psn = Psn{static_cast<std::uint32_t>(random.below(Psn::mask + 1u))};
      headers.deth = {random.chance(0.8) ? own_qkey : static_cast<std::uint32_t>(random.next()), peer_qpn};
      headers.reth.address = random.chance(0.7) ? remote_base + random.below(region_bytes) : random.next();
      headers.reth.rkey =
          random.chance(0.8) ? remote_key : Key{static_cast<std::uint32_t>(0x10 + random.below(4))};
      headers.reth.length =
          static_cast<std::uint32_t>(random.chance(0.8) ? random.below(5000) : random.next());
      const std::uint32_t bytes = random.chance(0.6) ? 1024 : static_cast<std::uint32_t>(random.below(5000));
      solo.give(headers, row.payload == wire::PayloadRule::none ? Bytes{} : solo.payload(bytes));
      for (const Completion& completion : solo.completions())
        ASSERT_TRUE(completed.insert(completion.wr_id).second) << "completed twice";
    }
    EXPECT_EQ(solo.transmit().size(), posted);
    // Receives reach 3000 bytes into the local region, no further.
    const auto& after = solo.memory.find(local_key)->bytes;
    ASSERT_TRUE(std::equal(after.begin() + 3000, after.end(), local.begin() + 3000));
    ASSERT_EQ(solo.memory.find(read_only_key)->bytes, read_only);
    ASSERT_EQ(solo.memory.find(foreign_key)->bytes, foreign);
    ASSERT_EQ(solo.qp.state(), QpState::rts);
  }
}

}  // namespace
}  // namespace beeline::proto::testing
