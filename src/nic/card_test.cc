// The card in virtual time over a network in memory: what arrives, what is refused, what
// happens to memory that goes away.
#include "nic/card.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "nic/two_cards.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace beeline::nic::test {
namespace {

using proto::PostResult;
using proto::QpState;
using proto::WcOpcode;
using proto::WcStatus;
using proto::WrOpcode;

using CardTest = TwoCards;

constexpr std::size_t sizes[] = {0,    1,    3,    4,    255,  256,   1023,  1024,
                                 1025, 4095, 4096, 4097, 8192, 65537, 300001};

TEST_F(CardTest, SendOfManySizes) {
  connect_both();
  for (const std::size_t bytes : sizes) {
    left_->fill(0, bytes, static_cast<std::uint32_t>(bytes));
    std::fill(right_->memory().begin(), right_->memory().end(), std::byte{0});
    ASSERT_EQ(right_->receive(7, 100, 500000), PostResult::ok);
    ASSERT_EQ(left_->post(WrOpcode::send, 8, 0, bytes), PostResult::ok);
    ASSERT_TRUE(run_until([&] { return !left_->done.empty() && !right_->done.empty(); })) << bytes;
    EXPECT_EQ(left_->done[0].status, WcStatus::success);
    EXPECT_EQ(left_->done[0].wr_id, 8u);
    EXPECT_EQ(right_->done[0].status, WcStatus::success);
    EXPECT_EQ(right_->done[0].opcode, WcOpcode::receive);
    EXPECT_EQ(right_->done[0].byte_length, bytes);
    ASSERT_EQ(std::memcmp(right_->memory().data() + 100, left_->memory().data(), bytes), 0) << bytes;
    EXPECT_EQ(right_->memory()[100 + bytes], std::byte{0}) << "nothing behind " << bytes;
    left_->done.clear();
    right_->done.clear();
  }
  EXPECT_EQ(right_card_->counters().icrc_bad, 0u);
  EXPECT_GT(right_card_->counters().icrc_exact, 0u);
}

TEST_F(CardTest, WriteAndReadOfManySizes) {
  connect_both();
  for (const std::size_t bytes : sizes) {
    left_->fill(0, bytes, 5);
    ASSERT_EQ(left_->post(WrOpcode::write, 1, 0, bytes, 64), PostResult::ok);
    ASSERT_EQ(left_->post(WrOpcode::read, 2, 500000, bytes, 64), PostResult::ok);
    ASSERT_TRUE(run_until([&] { return left_->done.size() == 2; })) << bytes;
    EXPECT_EQ(left_->done[0].wr_id, 1u);
    EXPECT_EQ(left_->done[1].wr_id, 2u);
    EXPECT_FALSE(left_->failed());
    ASSERT_EQ(std::memcmp(right_->memory().data() + 64, left_->memory().data(), bytes), 0) << bytes;
    ASSERT_EQ(std::memcmp(left_->memory().data() + 500000, left_->memory().data(), bytes), 0) << bytes;
    left_->done.clear();
  }
  EXPECT_TRUE(right_->done.empty()) << "one-sided operations complete on one side";
}

TEST_F(CardTest, ImmediateInlineAndGather) {
  connect_both();
  left_->fill(0, 5000, 1);
  ASSERT_EQ(right_->receive(1, 0, 0), PostResult::ok);
  const std::array pieces{left_->sge(0, 1000), left_->sge(2000, 3), left_->sge(3000, 1500)};
  ASSERT_EQ(left_->post(WrOpcode::write_imm, 2, pieces, 0, 0xDEADBEEF), PostResult::ok);
  ASSERT_TRUE(run_until([&] { return right_->done.size() == 1 && left_->done.size() == 1; }));
  EXPECT_EQ(right_->done[0].opcode, WcOpcode::receive_write_imm);
  EXPECT_TRUE(right_->done[0].has_immediate);
  EXPECT_EQ(right_->done[0].immediate, 0xDEADBEEFu);
  EXPECT_EQ(right_->done[0].byte_length, 2503u);
  EXPECT_EQ(std::memcmp(right_->memory().data(), left_->memory().data(), 1000), 0);
  EXPECT_EQ(std::memcmp(right_->memory().data() + 1000, left_->memory().data() + 2000, 3), 0);
  EXPECT_EQ(std::memcmp(right_->memory().data() + 1003, left_->memory().data() + 3000, 1500), 0);

  std::array<std::byte, 100> words;
  words.fill(std::byte{0x77});
  const proto::Sge piece{reinterpret_cast<std::uintptr_t>(words.data()), 100, Key{}};
  proto::SendWr wr;
  wr.opcode = WrOpcode::write;
  wr.inline_data = true;
  wr.signaled = true;
  wr.remote_address = right_->address_of(9000);
  wr.rkey = right_->keys().rkey;
  wr.sges = {&piece, 1};
  ASSERT_EQ(left_card_->post_send(left_->qp(), wr), PostResult::ok);
  words.fill(std::byte{0});  // they were taken at post time
  ASSERT_TRUE(run_until([&] { return left_->done.size() == 2; }));
  EXPECT_EQ(right_->memory()[9000], std::byte{0x77});
  EXPECT_EQ(right_->memory()[9099], std::byte{0x77});
  EXPECT_EQ(right_->memory()[9100], std::byte{0});
}

TEST_F(CardTest, LossyNetworkDeliversEverythingOnceAndInOrder) {
  std::uint64_t spoiled = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    FakeNetwork network(FakeNetwork::Clock::manual, seed);
    auto left_card = make_card(network, 1, left_address);
    auto right_card = make_card(network, 2, right_address);
    EndOptions options;
    options.timeout = 10;
    End left(*left_card, options), right(*right_card, options);
    connect(left, right);
    network.set_faults({0.05, 0.03, 0.05, 0.02, 0.05});
    constexpr std::size_t messages = 20, bytes = 10000;
    left.fill(0, messages * bytes, static_cast<std::uint32_t>(seed));
    for (std::size_t i = 0; i < messages; ++i) {
      ASSERT_EQ(right.receive(i, i * bytes, bytes), PostResult::ok);
      ASSERT_EQ(left.post(WrOpcode::send, i, i * bytes, bytes), PostResult::ok);
      ASSERT_EQ(right.post(WrOpcode::read, 100 + i, 500000 + i * bytes, bytes, i * bytes), PostResult::ok);
    }
    for (int round = 0; round < 400000 && (left.done.size() < messages || right.done.size() < 2 * messages);
         ++round) {
      left.poll();
      right.poll();
      network.advance(10us);
    }
    ASSERT_EQ(left.done.size(), messages) << "seed " << seed;
    ASSERT_EQ(right.done.size(), 2 * messages) << "seed " << seed;
    ASSERT_FALSE(left.failed() || right.failed()) << "seed " << seed;
    for (std::size_t i = 0; i < messages; ++i) EXPECT_EQ(left.done[i].wr_id, i);
    EXPECT_EQ(std::memcmp(right.memory().data(), left.memory().data(), messages * bytes), 0)
        << "seed " << seed;
    EXPECT_EQ(std::memcmp(right.memory().data() + 500000, left.memory().data(), messages * bytes), 0);
    for (const Card* card : {left_card.get(), right_card.get()}) {
      spoiled += card->counters().icrc_bad + card->counters().malformed;
      refused += card->counters().send_no_room;
    }
  }
  EXPECT_GT(spoiled, 0u);
  EXPECT_GT(refused, 0u);
}

// --- Faults

TEST_F(CardTest, MemoryUnmappedBeforeASendIsALocalProtectionError) {
  connect_both();
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (const std::size_t bytes : {std::size_t{100}, page * 4}) {  // copied, and gathered
    void* memory = ::mmap(nullptr, page * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const auto keys =
        value_of(left_card_->register_region(left_->domain(), memory, page * 4, 0x5000, full_access));
    take_away(memory, page * 4);
    const proto::Sge piece{0x5000, static_cast<std::uint32_t>(bytes), keys.lkey};
    ASSERT_EQ(left_->post(WrOpcode::write, 1, {&piece, 1}), PostResult::ok);
    ASSERT_TRUE(run_until([&] { return !left_->done.empty(); }));
    EXPECT_EQ(left_->done[0].status, WcStatus::local_protection_error);
    EXPECT_EQ(left_->state(), QpState::err);
    succeeds(left_card_->deregister_region(keys.lkey));
    left_.reset();
    right_.reset();
    connect_both();
  }
  EXPECT_EQ(left_card_->counters().send_faults, 2u);
}

TEST_F(CardTest, MemoryUnmappedUnderIncomingWritesIsANak) {
  connect_both();
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* memory = ::mmap(nullptr, page * 64, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto keys =
      value_of(right_card_->register_region(right_->domain(), memory, page * 64, 0, full_access));
  take_away(static_cast<std::byte*>(memory) + page * 32, page * 32);  // the second half
  const proto::Sge piece = left_->sge(0, page * 64);
  proto::SendWr wr;
  wr.opcode = WrOpcode::write;
  wr.signaled = true;
  wr.rkey = keys.rkey;
  wr.sges = {&piece, 1};
  ASSERT_EQ(left_card_->post_send(left_->qp(), wr), PostResult::ok);
  ASSERT_TRUE(run_until([&] { return !left_->done.empty(); }));
  EXPECT_TRUE(left_->done[0].status == WcStatus::remote_access_error ||
              left_->done[0].status == WcStatus::remote_operation_error)
      << static_cast<int>(left_->done[0].status);
  EXPECT_EQ(left_->state(), QpState::err);
  succeeds(right_card_->deregister_region(keys.lkey));
  ::munmap(memory, page * 64);
}

TEST_F(CardTest, MemoryUnmappedUnderAReadIsANak) {
  connect_both();
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* memory = ::mmap(nullptr, page * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto keys =
      value_of(right_card_->register_region(right_->domain(), memory, page * 8, 0, full_access));
  take_away(memory, page * 8);
  const proto::Sge piece = left_->sge(0, page * 8);
  proto::SendWr wr;
  wr.opcode = WrOpcode::read;
  wr.signaled = true;
  wr.rkey = keys.rkey;
  wr.sges = {&piece, 1};
  ASSERT_EQ(left_card_->post_send(left_->qp(), wr), PostResult::ok);
  ASSERT_TRUE(run_until([&] { return !left_->done.empty(); }));
  EXPECT_TRUE(left_->done[0].status == WcStatus::remote_access_error ||
              left_->done[0].status == WcStatus::remote_operation_error)
      << static_cast<int>(left_->done[0].status);
  EXPECT_EQ(right_->state(), QpState::err);
  succeeds(right_card_->deregister_region(keys.lkey));
}

TEST_F(CardTest, BadKeyCostsThePeerItsQueuePairOnly) {
  connect_both();
  proto::SendWr wr;
  const proto::Sge piece = left_->sge(0, 8);
  wr.opcode = WrOpcode::write;
  wr.signaled = true;
  wr.remote_address = right_->address_of(0);
  wr.rkey = Key{right_->keys().rkey.value + 1};
  wr.sges = {&piece, 1};
  ASSERT_EQ(left_card_->post_send(left_->qp(), wr), PostResult::ok);
  ASSERT_EQ(left_->post(WrOpcode::write, 5, 0, 8), PostResult::ok);
  ASSERT_TRUE(run_until([&] { return left_->done.size() == 2; }));
  EXPECT_EQ(left_->done[0].status, WcStatus::remote_access_error);
  EXPECT_EQ(left_->done[1].status, WcStatus::flushed);
  left_.reset();
  right_.reset();
  connect_both();
  ASSERT_EQ(left_->post(WrOpcode::write, 5, 0, 8), PostResult::ok);
  ASSERT_TRUE(run_until([&] { return left_->done.size() == 1; }));
  EXPECT_FALSE(left_->failed());
}

TEST_F(CardTest, PeerThatIsGoneExhaustsTheRetries) {
  EndOptions options;
  options.retry_count = 2;
  connect_both(options);
  right_.reset();
  right_.emplace(*right_card_);  // the process lives on, with another queue pair
  ASSERT_EQ(left_->post(WrOpcode::write, 3, 0, 8), PostResult::ok);
  ASSERT_TRUE(run_until([&] { return !left_->done.empty(); }));
  EXPECT_EQ(left_->done[0].status, WcStatus::retry_exceeded);
  EXPECT_GT(right_card_->counters().no_queue_pair, 0u);
}

// The ICRC is computed before the kernel gathers the payload; a program may change a flag that is
// being read at any time. Here it does so in the worst moment of every packet.
TEST_F(CardTest, MemoryThatChangesAllTheTimeIsReadWithOneRetry) {
  connect_both();
  std::uint64_t changed = 0;
  network_.before_gather = [&](const port::OutPacket& packet) {
    if (packet.pieces.size() > 1) ++changed;
    right_->memory()[2048] ^= std::byte{1};
  };
  constexpr std::uint64_t reads = 20;
  for (std::uint64_t i = 1; i <= reads; ++i) {
    ASSERT_EQ(left_->post(WrOpcode::read, i, 0, 4096, 0), PostResult::ok);
    ASSERT_TRUE(run_until([&] { return left_->done.size() == i; }));
  }
  EXPECT_FALSE(left_->failed());
  EXPECT_EQ(changed, reads) << "each response leaves by reference once";
  EXPECT_EQ(left_card_->counters().icrc_bad, reads) << "is dropped for its ICRC, and repeated as a copy";
}

// --- Who may talk to a queue pair

std::vector<std::byte> packet_to(Qpn qpn, const IpAddress& from, const IpAddress& to,
                                 std::uint16_t source_port) {
  std::vector<std::byte> bytes(wire::max_header_bytes);
  wire::Headers headers;
  headers.bth.opcode = wire::Opcode::rc_send_only;
  headers.bth.destination = qpn;
  bytes.resize(wire::emit(headers, bytes));
  wire::IpUdp ip_udp;
  ip_udp.source = from;
  ip_udp.destination = to;
  ip_udp.source_port = source_port;
  ip_udp.udp_payload_bytes = static_cast<std::uint16_t>(bytes.size() + wire::icrc_bytes);
  wire::Icrc crc(ip_udp);
  crc.update_headers(bytes);
  bytes.resize(bytes.size() + wire::icrc_bytes);
  wire::store_icrc(bytes.data() + bytes.size() - wire::icrc_bytes, crc.value());
  return bytes;
}

TEST_F(CardTest, StrangersAndGarbageCostACounter) {
  connect_both();
  const IpAddress stranger = IpAddress::v4(10, 9, 9, 9);
  const Qpn qpn = right_->address().qpn;
  const auto before = right_card_->counters();
  network_.inject(stranger, right_address, 50000, packet_to(qpn, stranger, right_address, 50000));
  network_.inject(left_address, right_address, 50000,
                  packet_to(Qpn{qpn.value ^ 1}, left_address, right_address, 50000));
  auto spoiled = packet_to(qpn, left_address, right_address, 50000);
  spoiled.back() ^= std::byte{1};
  network_.inject(left_address, right_address, 50000, spoiled);
  Prng random(3);
  constexpr int garbage = 1000;
  for (int i = 0; i < garbage; ++i) {
    std::vector<std::byte> bytes(6 + random.below(200));
    for (auto& b : bytes) b = static_cast<std::byte>(random.next());
    bytes[5] = std::byte{2};  // to this slot
    network_.inject(left_address, right_address, 50000, bytes);
  }
  run_for(100);
  const auto after = right_card_->counters();
  EXPECT_EQ(after.wrong_peer - before.wrong_peer, 1u);
  EXPECT_EQ(after.no_queue_pair - before.no_queue_pair, 1u);
  EXPECT_GE(after.icrc_bad - before.icrc_bad, 1u);
  EXPECT_EQ(after.received - before.received, static_cast<std::uint64_t>(garbage + 3));
  EXPECT_EQ(after.malformed + after.icrc_bad - before.malformed - before.icrc_bad,
            static_cast<std::uint64_t>(garbage + 1));
  EXPECT_EQ(right_->state(), QpState::rts);
  ASSERT_EQ(left_->post(WrOpcode::write, 1, 0, 5000), PostResult::ok);
  ASSERT_TRUE(run_until([&] { return !left_->done.empty(); }));
  EXPECT_FALSE(left_->failed());
}

}  // namespace
}  // namespace beeline::nic::test
