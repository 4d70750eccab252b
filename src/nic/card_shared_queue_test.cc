// Shared receive queues, events and resized completion queues between two cards.
#include <cstring>
#include <thread>

#include "nic/two_cards.h"

namespace beeline::nic::test {
namespace {

using proto::PostResult;
using proto::QpState;
using proto::QpType;
using proto::WcStatus;
using proto::WrOpcode;

void count_limit(void* cookie, CardEvent event) {
  EXPECT_EQ(event, CardEvent::shared_queue_limit);
  ++*static_cast<std::atomic<int>*>(cookie);
}

class CardShared : public TwoCards {
 public:
  ~CardShared() override {
    right_.reset();
    EXPECT_TRUE(succeeds(right_card_->destroy_srq(shared_)));
    EXPECT_TRUE(succeeds(right_card_->deregister_region(keys_.lkey)));
    EXPECT_TRUE(succeeds(right_card_->destroy_domain(domain_)));
  }

 protected:
  static constexpr std::uint32_t depth = 256;
  static constexpr std::size_t slot_bytes = 4096;

  CardShared()
      : domain_(value_of(right_card_->create_domain())),
        shared_(value_of(right_card_->create_srq(domain_, depth, 2, count_limit, &limits_))),
        pool_(depth * slot_bytes),
        keys_(value_of(right_card_->register_region(domain_, pool_.data(), pool_.size(), 0, full_access))) {}
  EndOptions sharing(QpType type = QpType::rc) const {
    EndOptions options;
    options.type = type;
    options.shared_queue = shared_;
    options.domain = domain_;
    return options;
  }
  PostResult post(std::uint64_t slot) {
    const proto::Sge piece{slot * slot_bytes, slot_bytes, keys_.lkey};
    return right_card_->post_srq_recv(shared_, {slot, {&piece, 1}});
  }

  std::atomic<int> limits_{0};
  PdId domain_;
  SharedQueue* shared_;
  std::vector<std::byte> pool_;
  RegionKeys keys_;
};

// Eight connections take from one queue over a bad network: every message lands once, in a slot of its own,
// in the order of its connection.
TEST_F(CardShared, EightConnectionsShareOneQueueUnderLoss) {
  constexpr std::size_t pairs = 8, messages = 100;
  network_.set_faults({.loss = 0.05, .duplicate = 0.05, .reorder = 0.05, .corrupt = 0.02, .no_room = 0.02});
  std::vector<std::unique_ptr<End>> left, right;
  for (std::size_t p = 0; p < pairs; ++p) {
    left.push_back(std::make_unique<End>(*left_card_));
    right.push_back(std::make_unique<End>(*right_card_, sharing()));
    connect(*left[p], *right[p]);
  }
  for (std::uint64_t slot = 0; slot < 20; ++slot) ASSERT_EQ(post(slot), PostResult::ok);
  for (std::size_t p = 0; p < pairs; ++p)
    for (std::uint32_t m = 0; m < messages; ++m) {
      const std::uint32_t mark[2] = {static_cast<std::uint32_t>(p), m};
      const std::size_t at = std::size_t{m} * 2000;
      std::memcpy(left[p]->memory().data() + at, mark, sizeof mark);
      ASSERT_EQ(left[p]->post(WrOpcode::send, m, at, 2000), PostResult::ok);
    }
  std::array<std::uint32_t, pairs> next{};
  std::size_t total = 0;
  ASSERT_TRUE(run_until([&] {
    for (std::size_t p = 0; p < pairs; ++p) {
      left[p]->poll();
      right[p]->poll();
      for (const auto& c : right[p]->done) {
        EXPECT_EQ(c.status, WcStatus::success);
        EXPECT_EQ(c.byte_length, 2000u);
        std::uint32_t mark[2];
        std::memcpy(mark, pool_.data() + c.wr_id * slot_bytes, sizeof mark);
        EXPECT_EQ(mark[0], p);
        EXPECT_EQ(mark[1], next[p]++);
        EXPECT_EQ(post(c.wr_id), PostResult::ok);
        ++total;
      }
      right[p]->done.clear();
    }
    return total == pairs * messages;
  }));
  EXPECT_EQ(right_card_->destroy_srq(shared_).error().code, Errc::in_use);
}

TEST_F(CardShared, DatagramsShareIt) {
  left_.emplace(*left_card_, [] {
    EndOptions options;
    options.type = QpType::ud;
    return options;
  }());
  right_.emplace(*right_card_, sharing(QpType::ud));
  left_->open_for_datagrams();
  right_->open_for_datagrams();
  ASSERT_EQ(post(3), PostResult::ok);
  AddressVector address;
  address.destination = right_address;
  const proto::DatagramTarget to{value_of(left_card_->resolve_path(0, address)), right_->address().qpn,
                                 End::qkey};
  ASSERT_EQ(left_->send_datagram(1, 0, 8, to), PostResult::ok);
  ASSERT_TRUE(run_until([&] { return right_->done.size() == 1; }));
  EXPECT_EQ(right_->done[0].wr_id, 3u);
}

TEST_F(CardShared, TheLimitIsToldOnce) {
  left_.emplace(*left_card_);
  right_.emplace(*right_card_, sharing());
  connect(*left_, *right_);
  for (std::uint64_t slot = 0; slot < 5; ++slot) ASSERT_EQ(post(slot), PostResult::ok);
  ASSERT_TRUE(succeeds(right_card_->arm_srq(shared_, 3)));
  EXPECT_EQ(right_card_->srq_limit(shared_), 3u);
  for (std::size_t sent = 1; sent <= 4; ++sent) {
    ASSERT_EQ(left_->post(WrOpcode::send, 1, 0, 8), PostResult::ok);
    ASSERT_TRUE(run_until([&] { return right_->done.size() == sent; }));
    EXPECT_EQ(limits_, sent >= 3 ? 1 : 0) << sent;
  }
  EXPECT_EQ(right_card_->srq_limit(shared_), 0u) << "armed for one event";
  EXPECT_FALSE(right_card_->arm_srq(shared_, depth + 1));
  EXPECT_EQ(right_->receive(1, 0, 8), PostResult::invalid) << "it has no receive queue of its own";
}

TEST_F(CardShared, AnErrorLeavesTheOthersTheirReceives) {
  End other_left(*left_card_), other_right(*right_card_, sharing());
  connect(other_left, other_right);
  left_.emplace(*left_card_);
  right_.emplace(*right_card_, sharing());
  connect(*left_, *right_);
  for (std::uint64_t slot = 0; slot < 5; ++slot) ASSERT_EQ(post(slot), PostResult::ok);
  proto::QpAttr a;
  a.state = QpState::err;
  ASSERT_TRUE(succeeds(right_card_->modify_qp(right_->qp(), a, proto::attr::state, nullptr)));
  ASSERT_TRUE(run_until([&] { return right_->count(CardEvent::qp_last_request_reached) == 1; }));
  EXPECT_TRUE(right_->done.empty()) << "it held none of them";
  for (std::uint64_t i = 0; i < 5; ++i) ASSERT_EQ(other_left.post(WrOpcode::send, i, 0, 8), PostResult::ok);
  EXPECT_TRUE(run_until([&] {
    other_left.poll();
    other_right.poll();
    return other_right.done.size() == 5;
  }));
  EXPECT_FALSE(other_right.failed());
}

TEST_F(CardShared, WhatIsAskedIsChecked) {
  EXPECT_FALSE(right_card_->create_srq(domain_, 0, 1));
  EXPECT_FALSE(right_card_->create_srq(domain_, right_card_->limits().shared_queue_depth + 1, 1));
  EXPECT_FALSE(right_card_->create_srq(domain_, 1, right_card_->limits().sges + 1));
  EXPECT_EQ(right_card_->create_srq(PdId{999}, 1, 1).error().code, Errc::not_found);
  EXPECT_EQ(right_card_->destroy_srq(nullptr).error().code, Errc::not_found);
  const std::array<proto::Sge, 3> three{};
  EXPECT_EQ(right_card_->post_srq_recv(shared_, {1, three}), PostResult::too_many_sges);
  for (std::uint64_t slot = 0; slot < depth; ++slot) ASSERT_EQ(post(slot), PostResult::ok);
  EXPECT_EQ(post(0), PostResult::queue_full);

  QpRequest request;
  request.domain = value_of(right_card_->create_domain());
  request.send_cq = request.receive_cq = value_of(right_card_->create_cq(8, nullptr, nullptr));
  request.shared_queue = shared_;
  EXPECT_EQ(right_card_->create_qp(request).error().code, Errc::invalid_argument) << "another domain";
  request.shared_queue = reinterpret_cast<SharedQueue*>(this);
  EXPECT_EQ(right_card_->create_qp(request).error().code, Errc::not_found);
  EXPECT_TRUE(succeeds(right_card_->destroy_cq(request.send_cq)));
  EXPECT_TRUE(succeeds(right_card_->destroy_domain(request.domain)));
}

class CardEvents : public TwoCards {};

TEST_F(CardEvents, TheFirstPacketEstablishesOnce) {
  connect_both();
  // The receiver stays in RTR, where that is news.
  End late(*right_card_), early(*left_card_);
  early.connect(late.address());
  proto::QpAttr a;
  namespace attr = proto::attr;
  a.state = QpState::init;
  a.access = full_access;
  ASSERT_TRUE(succeeds(right_card_->modify_qp(
      late.qp(), a, attr::state | attr::pkey_index | attr::port | attr::access_flags, nullptr)));
  a.state = QpState::rtr;
  a.destination = early.address().qpn;
  a.rq_psn = early.address().psn;
  a.path_mtu_bytes = 4096;
  AddressVector to;
  to.destination = left_address;
  ASSERT_TRUE(succeeds(right_card_->modify_qp(late.qp(), a,
                                              attr::state | attr::address_vector | attr::path_mtu |
                                                  attr::destination_qp | attr::rq_psn |
                                                  attr::max_dest_rd_atomic | attr::min_rnr_timer,
                                              &to)));
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(late.receive(1, 0, 100), PostResult::ok);
    ASSERT_EQ(early.post(WrOpcode::send, 1, 0, 8), PostResult::ok);
  }
  ASSERT_TRUE(run_until([&] {
    early.poll();
    late.poll();
    return late.done.size() == 3;
  }));
  EXPECT_EQ(late.count(CardEvent::qp_communication_established), 1u);
}

TEST_F(CardEvents, AnOverrunIsTheQueuesErrorAndFatalForItsUsers) {
  left_.emplace(*left_card_);
  EndOptions small;
  small.cq_depth = 4;
  right_.emplace(*right_card_, small);
  connect(*left_, *right_);
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_EQ(right_->receive(i, i * 100, 100), PostResult::ok);
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_EQ(left_->post(WrOpcode::send, i, 0, 8), PostResult::ok);
  // Somebody drives the right engine without taking what completes.
  CompletionQueue* driver = value_of(right_card_->create_cq(1, nullptr, nullptr));
  for (int i = 0; i < 100; ++i) {
    std::array<proto::Completion, 1> none;
    left_->poll();
    EXPECT_EQ(right_card_->poll_cq(driver, none), 0);
    network_.advance(10us);
  }
  EXPECT_EQ(right_->count(CardEvent::completion_queue_error), 1u);
  EXPECT_EQ(right_->count(CardEvent::qp_fatal), 1u);
  EXPECT_EQ(right_->state(), QpState::err);
  EXPECT_TRUE(succeeds(right_card_->destroy_cq(driver)));
}

TEST_F(CardEvents, NothingIsToldAfterDestroying) {
  connect_both();
  QpRequest request;
  request.domain = right_->domain();
  request.send_cq = request.receive_cq = right_->cq();
  std::atomic<int> told{0};
  request.events = [](void* cookie, CardEvent) { ++*static_cast<std::atomic<int>*>(cookie); };
  request.cookie = &told;
  QueuePair* qp = value_of(right_card_->create_qp(request));
  EXPECT_TRUE(succeeds(right_card_->destroy_qp(qp)));
  run_for(20);
  EXPECT_EQ(told, 0);
}

TEST_F(CardEvents, ResizingKeepsWhatWaitsInOrder) {
  EndOptions options;
  options.cq_depth = 64;
  connect_both(options);
  std::uint64_t next = 0, seen = 0;
  const auto take = [&](std::size_t n) {
    std::array<proto::Completion, 8> out;
    while (n > 0) {
      const int got = right_card_->poll_cq(right_->cq(), std::span(out).first(std::min<std::size_t>(n, 8)));
      ASSERT_GT(got, 0);
      for (int i = 0; i < got; ++i) EXPECT_EQ(out[static_cast<std::size_t>(i)].wr_id, seen++);
      n -= static_cast<std::size_t>(got);
    }
  };
  const auto fill = [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_EQ(right_->receive(next++, 0, 100), PostResult::ok);
      ASSERT_EQ(left_->post(WrOpcode::send, 0, 0, 8), PostResult::ok);
    }
    const std::size_t before = left_->done.size();
    std::array<proto::Completion, 1> none;
    CompletionQueue* driver = value_of(right_card_->create_cq(1, nullptr, nullptr));
    for (int rounds = 0; left_->done.size() < before + n && rounds < 10000; ++rounds) {
      left_->poll();
      (void)right_card_->poll_cq(driver, none);
      network_.advance(10us);
    }
    EXPECT_TRUE(succeeds(right_card_->destroy_cq(driver)));
  };
  fill(50);
  take(40);
  fill(40);  // wraps around
  EXPECT_EQ(right_card_->resize_cq(right_->cq(), 49).error().code, Errc::in_use);
  ASSERT_TRUE(succeeds(right_card_->resize_cq(right_->cq(), 50)));
  take(5);
  ASSERT_TRUE(succeeds(right_card_->resize_cq(right_->cq(), 200)));
  fill(100);
  take(145);
  EXPECT_EQ(right_->state(), QpState::rts) << "no overrun";
  EXPECT_FALSE(right_card_->resize_cq(right_->cq(), 0));
  EXPECT_FALSE(right_card_->resize_cq(right_->cq(), right_card_->limits().cq_depth + 1));
  EXPECT_EQ(right_card_->resize_cq(nullptr, 5).error().code, Errc::not_found);
}

}  // namespace
}  // namespace beeline::nic::test
