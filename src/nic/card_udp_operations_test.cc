// Everything but plain SEND, WRITE and READ on real UDP sockets, with progress threads and real threads.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>

#include "nic/card_fixture.h"
#include "nic/key_table.h"
#include "nic/real_ports.h"
#include "port/udp/udp_port.h"

namespace beeline::nic::test {
namespace {

using proto::Access;
using proto::PostResult;
using proto::QpType;
using proto::WcStatus;
using proto::WrOpcode;

std::unique_ptr<Card> open_card(std::uint8_t number, double loss = 0) {
  const port::Interface interface = interface_with(own_address(number));
  auto port = std::make_unique<LossyPort>(value_of(port::make_udp_port()), loss, number);
  return value_of(Card::create(Config{}, std::move(port), {&interface, 1}));
}

EndOptions of_type(QpType type) {
  EndOptions options = patient_options();
  options.type = type;
  return options;
}

TEST(CardUdpOperations, AtomicsOfManyCardsAndOfThisSideLoseNothing) {
  auto target_card = open_card(1), first_card = open_card(2, 0.02), second_card = open_card(3, 0.02);
  EndOptions options;  // lost packets are repeated soon
  options.timeout = 11;
  constexpr std::uint64_t rounds = 300;
  struct Pair {
    std::unique_ptr<End> from, to;
  };
  std::vector<Pair> pairs;
  for (Card* card : {first_card.get(), second_card.get(), first_card.get()}) {
    pairs.push_back({std::make_unique<End>(*card, options), std::make_unique<End>(*target_card, options)});
    connect(*pairs.back().from, *pairs.back().to);
  }
  alignas(8) std::uint64_t word = 0;
  const auto address = reinterpret_cast<std::uint64_t>(&word);
  std::vector<RegionKeys> keys;
  keys.reserve(pairs.size());
  for (const Pair& pair : pairs)
    keys.push_back(
        value_of(target_card->register_region(pair.to->domain(), &word, sizeof word, address, full_access)));
  std::vector<std::thread> threads;
  for (std::size_t p = 0; p < pairs.size(); ++p)
    threads.emplace_back([&, p] {
      End& end = *pairs[p].from;
      const proto::Sge piece = end.sge(64, 8);
      proto::SendWr wr;
      wr.opcode = WrOpcode::fetch_add;
      wr.signaled = true;
      wr.swap_or_add = 1;
      wr.remote_address = address;
      wr.rkey = keys[p].rkey;
      wr.sges = {&piece, 1};
      std::uint64_t posted = 0;
      EXPECT_TRUE(until([&] { return end.done.size() == rounds || end.failed(); },
                        [&] {
                          if (posted < rounds && posted - end.done.size() < 8)
                            posted += end.card().post_send(end.qp(), wr) == PostResult::ok ? 1 : 0;
                          end.poll();
                        }));
      EXPECT_FALSE(end.failed());
    });
  for (std::uint64_t i = 0; i < rounds; ++i) __atomic_fetch_add(&word, 1u << 20, __ATOMIC_RELAXED);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(__atomic_load_n(&word, __ATOMIC_RELAXED), rounds * 3 + (rounds << 20));
  for (const auto& k : keys) EXPECT_TRUE(succeeds(target_card->deregister_region(k.lkey)));
}

TEST(CardUdpOperations, DatagramsOfManySizesBothWays) {
  auto left_card = open_card(1), right_card = open_card(2);
  End left(*left_card, of_type(QpType::ud)), right(*right_card, of_type(QpType::ud));
  left.open_for_datagrams();
  right.open_for_datagrams();
  const auto target = [](Card& from, const End& to) {
    AddressVector address;
    address.destination = to.address().gid;
    return proto::DatagramTarget{value_of(from.resolve_path(0, address)), to.address().qpn, End::qkey};
  };
  const auto there = target(*left_card, right), back = target(*right_card, left);
  for (const std::size_t bytes : {0, 1, 3, 1024, 1025, 4096}) {
    left.fill(0, bytes, static_cast<std::uint32_t>(bytes));
    ASSERT_EQ(right.receive(1, 10000, 4200), PostResult::ok);
    ASSERT_EQ(left.receive(1, 20000, 4200), PostResult::ok);
    ASSERT_EQ(left.send_datagram(2, 0, bytes, there), PostResult::ok);
    const auto step = [&] {
      left.poll();
      right.poll();
    };
    ASSERT_TRUE(until([&] { return right.done.size() == 1; }, step)) << bytes;
    ASSERT_EQ(right.send_datagram(3, 10040, bytes, back), PostResult::ok);
    ASSERT_TRUE(until([&] { return left.done.size() == 2 && right.done.size() == 2; }, step)) << bytes;
    ASSERT_FALSE(left.failed() || right.failed());
    EXPECT_EQ(std::memcmp(left.memory().data() + 20040, left.memory().data(), bytes), 0) << bytes;
    left.done.clear();
    right.done.clear();
  }
  EXPECT_EQ(right_card->counters().icrc_bad + right_card->counters().icrc_affine, 0u);
}

TEST(CardUdpOperations, UnreliableConnectionsCarryLargeMessages) {
  auto left_card = open_card(1), right_card = open_card(2);
  End left(*left_card, of_type(QpType::uc)), right(*right_card, of_type(QpType::uc));
  connect(left, right);
  // A message may be lost when a socket buffer is full; then it is sent again.
  constexpr std::size_t bytes = 60000;
  left.fill(0, bytes, 5);
  ASSERT_EQ(right.receive(1, 100000, bytes), PostResult::ok);
  std::size_t sent = 0;
  EXPECT_TRUE(until([&] { return !right.done.empty(); },
                    [&] {
                      left.poll();
                      right.poll();
                      if (left.done.size() == sent)
                        sent += left.post(WrOpcode::send, sent, 0, bytes) == PostResult::ok ? 1 : 0;
                      std::this_thread::yield();
                    }));
  EXPECT_FALSE(left.failed() || right.failed());
  EXPECT_EQ(std::memcmp(right.memory().data() + 100000, left.memory().data(), bytes), 0);
}

TEST(CardUdpOperations, EightThreadsSendIntoOneDeepQueueUnderLoss) {
  constexpr std::size_t pairs = 8, messages = 60, slots = 512, bytes = 1500;
  auto left_card = open_card(1, 0.02), right_card = open_card(2, 0.02);
  const PdId domain = value_of(right_card->create_domain());
  std::vector<std::byte> pool(slots * bytes);
  const auto keys =
      value_of(right_card->register_region(domain, pool.data(), pool.size(), 0, Access::local_write));
  std::atomic<int> limits{0};
  SharedQueue* shared = value_of(right_card->create_srq(
      domain, slots, 1, [](void* cookie, CardEvent) { ++*static_cast<std::atomic<int>*>(cookie); }, &limits));
  EndOptions options;
  options.timeout = 11;
  options.memory_bytes = 100000;
  EndOptions sharing = options;
  sharing.domain = domain;
  sharing.shared_queue = shared;
  const auto post = [&](std::uint64_t slot) {
    const proto::Sge piece{slot * bytes, bytes, keys.lkey};
    return right_card->post_srq_recv(shared, {slot, {&piece, 1}});
  };
  for (std::uint64_t slot = 0; slot < slots; ++slot) ASSERT_EQ(post(slot), PostResult::ok);
  EXPECT_EQ(post(0), PostResult::queue_full);
  ASSERT_TRUE(succeeds(right_card->arm_srq(shared, slots / 2)));
  {
    std::vector<std::unique_ptr<End>> left, right;
    for (std::size_t p = 0; p < pairs; ++p) {
      left.push_back(std::make_unique<End>(*left_card, options));
      right.push_back(std::make_unique<End>(*right_card, sharing));
      connect(*left[p], *right[p]);
    }
    std::vector<std::thread> threads;
    for (std::size_t p = 0; p < pairs; ++p)
      threads.emplace_back([&, p] {
        std::size_t posted = 0;
        EXPECT_TRUE(until([&] { return left[p]->done.size() == messages; },
                          [&] {
                            if (posted < messages)
                              posted += left[p]->post(WrOpcode::send, posted, 0, bytes) == PostResult::ok;
                            left[p]->poll();
                          }));
        EXPECT_FALSE(left[p]->failed());
      });
    std::size_t total = 0;
    EXPECT_TRUE(until([&] { return total == pairs * messages; },
                      [&] {
                        for (auto& end : right) {
                          end->poll();
                          for (const auto& c : end->done) {
                            EXPECT_EQ(c.status, WcStatus::success);
                            EXPECT_EQ(c.byte_length, bytes);
                          }
                          total += end->done.size();
                          end->done.clear();
                        }
                      }));
    for (auto& thread : threads) thread.join();
  }
  EXPECT_EQ(limits, 1);
  EXPECT_TRUE(succeeds(right_card->destroy_srq(shared)));
  EXPECT_TRUE(succeeds(right_card->deregister_region(keys.lkey)));
  EXPECT_TRUE(succeeds(right_card->destroy_domain(domain)));
}

// The peer writes without end through a window; once its invalidation has completed, nothing lands.
TEST(CardUdpOperations, NothingLandsAfterAWindowIsInvalidated) {
  auto left_card = open_card(1), right_card = open_card(2);
  for (int round = 0; round < 10; ++round) {
    EndOptions options = patient_options();
    options.access = Access::local_write | Access::window_bind;
    End left(*left_card, patient_options()), right(*right_card, options);
    connect(left, right);
    const Key window = value_of(right_card->allocate_window(right.domain(), WindowType::type_2));
    proto::WindowBind bind;
    bind.window = window;
    bind.new_rkey = Key{window.value + 1};
    bind.region = right.keys().lkey;
    bind.address = right.address_of(0);
    bind.length = right.memory().size();
    bind.access = static_cast<std::uint8_t>(Access::remote_write);
    proto::SendWr bind_wr;
    bind_wr.opcode = WrOpcode::bind_mw;
    bind_wr.signaled = true;
    bind_wr.bind = &bind;
    ASSERT_EQ(right_card->post_send(right.qp(), bind_wr), PostResult::ok);
    ASSERT_TRUE(until([&] { return !right.done.empty(); }, [&] { right.poll(); }));
    ASSERT_FALSE(right.failed());
    right.done.clear();

    std::fill(left.memory().begin(), left.memory().end(), std::byte{0xEE});
    const proto::Sge piece = left.sge(0, 500000);
    proto::SendWr write;
    write.opcode = WrOpcode::write;
    write.signaled = true;
    write.remote_address = right.address_of(0);
    write.rkey = KeyTable::variant(window, bind.new_rkey);
    write.sges = {&piece, 1};
    const auto before = right_card->counters().wire_payload_received + 100000;
    std::thread writer([&] {
      std::size_t posted = 0;
      EXPECT_TRUE(until([&] { return left.failed(); },
                        [&] {
                          if (posted - left.done.size() < 16)
                            posted += left_card->post_send(left.qp(), write) == PostResult::ok ? 1 : 0;
                          left.poll();
                        }));
    });
    EXPECT_TRUE(until([&] { return right_card->counters().wire_payload_received > before; },
                      [] { std::this_thread::yield(); }));
    proto::SendWr end;
    end.opcode = WrOpcode::local_inv;
    end.signaled = true;
    end.invalidate = write.rkey;
    EXPECT_EQ(right_card->post_send(right.qp(), end), PostResult::ok);
    EXPECT_TRUE(until([&] { return !right.done.empty(); }, [&] { right.poll(); }));
    EXPECT_EQ(right.done.at(0).status, WcStatus::success);
    std::fill(right.memory().begin(), right.memory().end(), std::byte{0});
    writer.join();
    const auto& memory = right.memory();
    EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{0}), static_cast<long>(memory.size()));
    EXPECT_TRUE(succeeds(right_card->deallocate_window(window)));
  }
}

TEST(CardUdpOperations, AStormOnADatagramQueuePairStopsNobody) {
  auto left_card = open_card(1), right_card = open_card(2);
  End storm(*right_card, of_type(QpType::ud));
  storm.open_for_datagrams();
  End left(*left_card, patient_options()), right(*right_card, patient_options());
  connect(left, right);
  std::atomic<bool> stop{false};
  std::thread stranger([&] {
    const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(4791);
    std::memcpy(&to.sin_addr, storm.address().gid.bytes.data() + 12, 4);
    // UD SEND ONLY to the right queue pair, with an ICRC that nobody computed.
    std::array<std::byte, 200> bytes{};
    bytes[0] = std::byte{0x64};
    const std::uint32_t qpn = storm.address().qpn.value;
    for (std::size_t i = 0; i < 3; ++i) bytes[5 + i] = static_cast<std::byte>(qpn >> (16 - 8 * i));
    while (!stop) {
      (void)::sendto(socket, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to);
      std::this_thread::sleep_for(20us);
    }
    ::close(socket);
  });
  EXPECT_TRUE(until([&] { return right_card->counters().icrc_bad > 100; },
                    [&] {
                      right.poll();
                      std::this_thread::yield();
                    }));
  for (std::size_t i = 1; i <= 50; ++i) {
    ASSERT_EQ(left.post(WrOpcode::write, i, 0, 5000), PostResult::ok);
    EXPECT_TRUE(until([&] { return left.done.size() == i; },
                      [&] {
                        left.poll();
                        right.poll();
                      }));
  }
  stop = true;
  stranger.join();
  EXPECT_FALSE(left.failed());
  EXPECT_EQ(storm.state(), proto::QpState::rts);
}

}  // namespace
}  // namespace beeline::nic::test
