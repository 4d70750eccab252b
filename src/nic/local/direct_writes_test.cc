// WRITEs that are stores into the memory of another process: when they are, and when not any more.
#include "nic/local/direct_writes.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"
#include "nic/card_fixture.h"
#include "nic/real_ports.h"
#include "port/udp/udp_port.h"

namespace beeline::nic::test {
namespace {

using proto::PostResult;
using proto::WcStatus;
using proto::WrOpcode;

constexpr std::size_t memory_bytes = 65536;

// Nothing happens on these but by polling.
std::unique_ptr<Card> open_card(std::uint8_t number) {
  const port::Interface interface = interface_with(own_address(number));
  Config config;
  config.lane = Lane::local;
  config.log_level = "off";
  return value_of(Card::create(config, value_of(port::make_udp_port()), {&interface, 1}, false));
}

EndOptions options_in(PdId domain) {
  EndOptions options = patient_options();
  options.domain = domain;
  options.inline_bytes = 256;
  return options;
}

class DirectWrite : public ::testing::Test {
 protected:
  void SetUp() override {
    left_.emplace(*left_card_, options_in(left_domain_));
    right_.emplace(*right_card_, options_in(right_domain_));
    connect(*left_, *right_);
    memory_ = static_cast<std::byte*>(value_of(right_card_->allocate_memory(memory_bytes)));
    region_ = value_of(
        right_card_->register_region(right_domain_, memory_, memory_bytes, address_of(memory_), full_access));
  }
  void TearDown() override {
    left_.reset();
    right_.reset();
    if (region_.lkey != Key{}) succeeds(right_card_->deregister_region(region_.lkey));
    EXPECT_TRUE(succeeds(right_card_->free_memory(memory_)));
  }

  static std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }
  PostResult write(std::uint64_t value, std::size_t offset = 0, bool signaled = false, Key rkey = {}) {
    const proto::Sge sge{address_of(&value), sizeof value, Key{}};
    proto::SendWr request;
    request.wr_id = value;
    request.opcode = WrOpcode::write;
    request.signaled = signaled;
    request.inline_data = true;
    request.remote_address = address_of(memory_) + offset;
    request.rkey = rkey == Key{} ? region_.rkey : rkey;
    request.sges = {&sge, 1};
    return left_card_->post_send(left_->qp(), request);
  }
  // From the beginning of the other's memory, filled with `fill`.
  PostResult write_long(std::uint32_t bytes, std::byte fill, std::uint64_t id) {
    std::memset(left_->memory().data(), static_cast<int>(fill), bytes);
    const proto::Sge sge = left_->sge(0, bytes);
    proto::SendWr request;
    request.wr_id = id;
    request.opcode = WrOpcode::write_imm;
    request.signaled = true;
    request.remote_address = address_of(memory_);
    request.rkey = region_.rkey;
    request.sges = {&sge, 1};
    return left_card_->post_send(left_->qp(), request);
  }
  bool holds(std::size_t bytes, std::byte fill) const {
    return std::all_of(memory_, memory_ + bytes, [&](std::byte byte) { return byte == fill; });
  }
  std::uint64_t read(std::size_t offset = 0) const {
    std::uint64_t value = 0;
    std::memcpy(&value, memory_ + offset, sizeof value);
    return value;
  }
  void poll() {
    left_->poll();
    right_->poll();
  }
  // By messages both ways; from then on WRITEs are stores.
  void become_direct() {
    std::uint64_t value = 1;
    ASSERT_TRUE(until(
        [&] {
          EXPECT_EQ(write(++value), PostResult::ok);
          return read() == value;
        },
        [&] {
          for (int i = 0; i < 100; ++i) poll();
        }));
  }
  bool fails() {
    return until([&] { return left_->failed(); }, [&] { poll(); });
  }

  std::unique_ptr<Card> left_card_ = open_card(1), right_card_ = open_card(2);
  PdId left_domain_ = value_of(left_card_->create_domain());
  PdId right_domain_ = value_of(right_card_->create_domain());
  std::optional<End> left_, right_;
  std::byte* memory_ = nullptr;
  RegionKeys region_;
};

TEST_F(DirectWrite, IsThereWhenPostingReturns) {
  ASSERT_NO_FATAL_FAILURE(become_direct());
  for (std::uint64_t value = 1000; value < 1200; ++value) {
    ASSERT_EQ(write(value, 8 * (value - 1000)), PostResult::ok);
    ASSERT_EQ(read(8 * (value - 1000)), value);
  }
  EXPECT_GE(left_card_->counters().local_payload_sent, 200 * 8u);
}

TEST_F(DirectWrite, OneThatAsksForACompletionGetsItAtOnce) {
  ASSERT_NO_FATAL_FAILURE(become_direct());
  left_->done.clear();
  ASSERT_EQ(write(77, 0, true), PostResult::ok);
  left_->poll();
  ASSERT_EQ(left_->done.size(), 1u);
  EXPECT_EQ(left_->done[0].wr_id, 77u);
  EXPECT_EQ(left_->done[0].status, WcStatus::success);
  ASSERT_NO_FATAL_FAILURE(become_direct());
}

TEST_F(DirectWrite, WaitsForWhatWasPostedBefore) {
  ASSERT_NO_FATAL_FAILURE(become_direct());
  left_->done.clear();
  const std::uint64_t before = read();
  ASSERT_EQ(left_->post(WrOpcode::write, 1, 0, 20000), PostResult::ok);
  ASSERT_EQ(write(5000), PostResult::ok);
  EXPECT_EQ(read(), before) << "it overtook what was posted before";
  ASSERT_TRUE(until([&] { return read() == 5000; }, [&] { poll(); }));
  ASSERT_TRUE(until([&] { return !left_->done.empty(); }, [&] { poll(); }));
  EXPECT_FALSE(left_->failed());
  ASSERT_NO_FATAL_FAILURE(become_direct());
}

TEST_F(DirectWrite, TheBytesOfALongOneAreThereWhenPostingReturnsAndItCompletesInItsTurn) {
  ASSERT_NO_FATAL_FAILURE(become_direct());
  left_->done.clear();
  for (std::uint64_t id = 1; id <= 2; ++id) ASSERT_EQ(right_->receive(id, 0, 64), PostResult::ok);
  ASSERT_EQ(left_->post(WrOpcode::send, 1, 0, 8), PostResult::ok);
  ASSERT_EQ(write_long(20000, std::byte{0x5A}, 2), PostResult::ok);
  EXPECT_TRUE(holds(20000, std::byte{0x5A}));
  EXPECT_TRUE(right_->done.empty());
  ASSERT_TRUE(until([&] { return left_->done.size() == 2 && right_->done.size() == 2; }, [&] { poll(); }));
  for (const auto& done : {left_->done, right_->done})
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(done[i].wr_id, i + 1);
      EXPECT_EQ(done[i].status, WcStatus::success);
    }
  const CardCounters left = left_card_->counters(), right = right_card_->counters();
  EXPECT_EQ(left.local_payload_sent, left.local_payload_stored + right.local_payload_received);
}

TEST_F(DirectWrite, TheBytesOfALongOneDoNotReachARegionThatIsGone) {
  ASSERT_NO_FATAL_FAILURE(become_direct());
  ASSERT_TRUE(succeeds(right_card_->deregister_region(region_.lkey)));
  std::memset(memory_, 0, memory_bytes);
  ASSERT_EQ(write_long(20000, std::byte{0x5A}, 1), PostResult::ok);
  ASSERT_TRUE(fails());
  EXPECT_TRUE(holds(memory_bytes, std::byte{0}));
  EXPECT_EQ(left_->done.back().status, WcStatus::remote_access_error);
  region_ = {};
}

TEST_F(DirectWrite, IsRefusedOutsideTheRegionAndByOtherKeys) {
  ASSERT_NO_FATAL_FAILURE(become_direct());
  ASSERT_EQ(write(9, memory_bytes - 4), PostResult::ok);
  ASSERT_TRUE(fails());
  EXPECT_EQ(left_->done.back().status, WcStatus::remote_access_error);
}

TEST_F(DirectWrite, DoesNotReachARegionThatIsGone) {
  ASSERT_NO_FATAL_FAILURE(become_direct());
  ASSERT_TRUE(succeeds(right_card_->deregister_region(region_.lkey)));
  std::memset(memory_, 0, memory_bytes);
  ASSERT_EQ(write(9), PostResult::ok);
  ASSERT_TRUE(fails());
  EXPECT_EQ(read(), 0u);
  EXPECT_EQ(left_->done.back().status, WcStatus::remote_access_error);
  region_ = {};
}

TEST_F(DirectWrite, DoesNotReachAQueuePairInErrorOrThatIsGone) {
  ASSERT_NO_FATAL_FAILURE(become_direct());
  proto::QpAttr error;
  error.state = proto::QpState::err;
  ASSERT_TRUE(succeeds(right_card_->modify_qp(right_->qp(), error, proto::attr::state, nullptr)));
  std::memset(memory_, 0, memory_bytes);
  ASSERT_EQ(write(9), PostResult::ok);
  EXPECT_EQ(read(), 0u);
  right_->destroy_queue_pair();
  ASSERT_EQ(write(10), PostResult::ok);
  EXPECT_EQ(read(), 0u);
  ASSERT_TRUE(fails());
}

TEST_F(DirectWrite, DoesNotReachWhereTheQueuePairMayNotWriteAnyMore) {
  ASSERT_NO_FATAL_FAILURE(become_direct());
  proto::QpAttr rights;
  rights.access = proto::Access::local_write;
  ASSERT_TRUE(succeeds(right_card_->modify_qp(right_->qp(), rights, proto::attr::access_flags, nullptr)));
  std::memset(memory_, 0, memory_bytes);
  ASSERT_EQ(write(9), PostResult::ok);
  ASSERT_TRUE(fails());
  EXPECT_EQ(read(), 0u);
}

TEST_F(DirectWrite, MemoryThatTheCardHasNotAllocatedIsNotShared) {
  std::memset(right_->memory().data(), 0, 8);
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t value = 1;
    const proto::Sge sge{address_of(&value), sizeof value, Key{}};
    proto::SendWr request;
    request.opcode = WrOpcode::write;
    request.inline_data = true;
    request.remote_address = right_->address().memory;
    request.rkey = right_->address().rkey;
    request.sges = {&sge, 1};
    std::memset(right_->memory().data(), 0, 8);
    ASSERT_EQ(left_card_->post_send(left_->qp(), request), PostResult::ok);
    ASSERT_EQ(right_->memory()[0], std::byte{0});
    ASSERT_TRUE(until([&] { return right_->memory()[0] == std::byte{1}; }, [&] { poll(); }));
  }
}

// A writer that stays inside for ever holds nobody up for ever, and cannot do so again and again.
TEST(DirectWrites, AWriterThatNeverLeavesIsNotWaitedForForEver) {
  auto pair = std::make_unique<proto::local::SharedPair>();
  local::DirectWrites owner;
  owner.begin(*pair, 0);
  int grants = 0;
  for (std::uint32_t key = 1; owner.may_grant(Key{key}) && grants < 100; ++key, ++grants) {
    EXPECT_NE(owner.grant(Key{key}), 0u);
    EXPECT_TRUE(owner.grants(Key{key}));
    EXPECT_FALSE(owner.may_grant(Key{key}));
  }
  EXPECT_LT(grants, 10);
  pair->gates[0].inside.store(1);
  owner.revoke();
  EXPECT_EQ(pair->gates[0].open.load(), 0u);
}

TEST(DirectWrites, TwoRegionsShareAPermissionAndAThirdTakesTheirPlace) {
  auto pair = std::make_unique<proto::local::SharedPair>();
  local::DirectWrites owner, writer;
  owner.begin(*pair, 0);
  writer.begin(*pair, 1);
  const auto share = [&](Key key) {
    EXPECT_TRUE(writer.should_ask(key));
    writer.note_asked(key);
    EXPECT_FALSE(writer.should_ask(key));
    const std::uint32_t number = owner.grant(key);
    writer.use(key, value_of(local::SharedMemory::create("test", memory_bytes)), number, 1000, 0, 100);
    return number;
  };
  const std::uint32_t number = share(Key{1});
  EXPECT_EQ(share(Key{2}), number);
  EXPECT_NE(writer.find(Key{1}, 1000, 8), nullptr);
  EXPECT_NE(writer.find(Key{2}, 1000, 8), nullptr);
  EXPECT_NE(share(Key{3}), number);
  EXPECT_FALSE(owner.grants(Key{1}) || owner.grants(Key{2}));
  EXPECT_EQ(writer.find(Key{1}, 1000, 8), nullptr);
  EXPECT_EQ(writer.find(Key{2}, 1000, 8), nullptr);
  EXPECT_NE(writer.find(Key{3}, 1000, 8), nullptr);
  owner.revoke();
  EXPECT_FALSE(writer.write([] { return true; }));
}

TEST(DirectWrites, FindNothingBeyondWhatWasGranted) {
  auto pair = std::make_unique<proto::local::SharedPair>();
  local::DirectWrites owner, writer;
  owner.begin(*pair, 0);
  writer.begin(*pair, 1);
  writer.note_asked(Key{5});
  EXPECT_EQ(writer.find(Key{5}, 1000, 8), nullptr) << "nothing was granted yet";
  auto memory = value_of(local::SharedMemory::create("test", memory_bytes));
  auto* const data = static_cast<std::byte*>(memory.data());
  writer.use(Key{5}, std::move(memory), owner.grant(Key{5}), 1000, 64, 100);
  EXPECT_EQ(writer.find(Key{5}, 1000, 100), data + 64);
  EXPECT_EQ(writer.find(Key{5}, 1092, 8), data + 156);
  EXPECT_EQ(writer.find(Key{5}, 1093, 8), nullptr);
  EXPECT_EQ(writer.find(Key{5}, 999, 8), nullptr);
  EXPECT_EQ(writer.find(Key{5}, 1000, 101), nullptr);
  EXPECT_EQ(writer.find(Key{5}, UINT64_MAX - 2, 8), nullptr);
  EXPECT_EQ(writer.find(Key{6}, 1000, 8), nullptr);
  EXPECT_TRUE(writer.write([] { return true; }));
  owner.revoke();
  EXPECT_FALSE(writer.write([] { return true; }));
  EXPECT_EQ(writer.find(Key{5}, 1000, 8), nullptr) << "a gate that was found closed is not tried again";
}

// Whatever the owner says that the region is called, nothing is found outside its piece of the memory.
TEST(DirectWrites, FindNothingOutsideThePieceWhateverItBeginsWith) {
  Prng random(21);
  const std::uint64_t starts[] = {0, 1, 1000, UINT64_MAX - 50, UINT64_MAX};
  int found = 0;
  for (const std::uint64_t start : starts) {
    auto pair = std::make_unique<proto::local::SharedPair>();
    local::DirectWrites writer;
    writer.begin(*pair, 1);
    writer.note_asked(Key{5});
    auto memory = value_of(local::SharedMemory::create("test", memory_bytes));
    const std::byte* const piece = static_cast<std::byte*>(memory.data()) + 64;
    writer.use(Key{5}, std::move(memory), 1, start, 64, 100);
    for (int i = 0; i < 20000; ++i) {
      const std::uint64_t bytes = i % 8 == 0 ? random.next() : random.below(128);
      const std::uint64_t address = i % 7 == 0 ? random.next() : start + random.below(256) - 64;
      const std::byte* const at = writer.find(Key{5}, address, bytes);
      if (at == nullptr) continue;
      ++found;
      ASSERT_GE(at, piece) << start << " " << address << " " << bytes;
      ASSERT_LE(bytes, 100u);
      ASSERT_LE(static_cast<std::uint64_t>(at - piece), 100 - bytes) << start << " " << address;
    }
  }
  EXPECT_GT(found, 0);
}

TEST(DirectWrites, CopyAnyLengthToAnyPlace) {
  alignas(8) std::byte to[64];
  std::byte from[64];
  for (std::size_t i = 0; i < sizeof from; ++i) from[i] = static_cast<std::byte>(i + 1);
  for (std::size_t at = 0; at < 16; ++at)
    for (std::size_t bytes = 1; bytes < 40; ++bytes) {
      std::memset(to, 0, sizeof to);
      local::store_last_word_last(to + at, from, bytes);
      EXPECT_EQ(std::memcmp(to + at, from, bytes), 0);
      EXPECT_EQ(to[at + bytes], std::byte{0});
    }
}

}  // namespace
}  // namespace beeline::nic::test
