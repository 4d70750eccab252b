// The card's objects and their users: who keeps whom, what is refused, what goes with what.
#include "nic/card.h"
#include "nic/two_cards.h"

namespace beeline::nic::test {
namespace {

using proto::PostResult;
using proto::QpState;
using proto::WcStatus;
using proto::WrOpcode;

using CardObjects = TwoCards;

TEST_F(CardObjects, DestroyingWhatIsInUseIsRefused) {
  connect_both();
  const auto domain = left_card_->destroy_domain(left_->domain());
  ASSERT_FALSE(domain);
  EXPECT_EQ(domain.error().code, Errc::in_use);
  const auto queue = left_card_->destroy_cq(left_->cq());
  ASSERT_FALSE(queue);
  EXPECT_EQ(queue.error().code, Errc::in_use);
  left_->destroy_queue_pair();
  const auto still = left_card_->destroy_domain(left_->domain());
  ASSERT_FALSE(still) << "the region is left";
  EXPECT_EQ(still.error().code, Errc::in_use);
}

TEST_F(CardObjects, UnknownObjectsAreNotFound) {
  EXPECT_EQ(left_card_->destroy_domain(PdId{99}).error().code, Errc::not_found);
  EXPECT_EQ(left_card_->destroy_cq(nullptr).error().code, Errc::not_found);
  EXPECT_EQ(left_card_->destroy_qp(nullptr).error().code, Errc::not_found);
  EXPECT_EQ(left_card_->deregister_region(Key{5}).error().code, Errc::not_found);
  int word = 0;
  EXPECT_EQ(left_card_->register_region(PdId{99}, &word, 4, 0, full_access).error().code, Errc::not_found);
  EXPECT_EQ(left_card_->create_cq(0, nullptr, nullptr).error().code, Errc::invalid_argument);
  EXPECT_FALSE(left_card_->create_cq(left_card_->limits().cq_depth + 1, nullptr, nullptr));
  QpRequest request;
  request.device = 3;
  EXPECT_EQ(left_card_->create_qp(request).error().code, Errc::not_found);
}

TEST_F(CardObjects, LimitsThatAreAdvertisedAreEnforced) {
  left_.emplace(*left_card_);
  const Limits& limits = left_card_->limits();
  QpRequest request;
  request.domain = left_->domain();
  request.send_cq = request.receive_cq = left_->cq();
  for (const proto::QpLimits wrong : {proto::QpLimits{limits.queue_depth + 1, 1, 1, 1, 0, false},
                                      proto::QpLimits{1, limits.queue_depth + 1, 1, 1, 0, false},
                                      proto::QpLimits{1, 1, limits.sges + 1, 1, 0, false},
                                      proto::QpLimits{1, 1, 1, limits.sges + 1, 0, false},
                                      proto::QpLimits{1, 1, 1, 1, proto::max_inline_bytes + 1, false}}) {
    request.limits = wrong;
    const auto qp = left_card_->create_qp(request);
    ASSERT_FALSE(qp);
    EXPECT_EQ(qp.error().code, Errc::invalid_argument);
  }
}

TEST_F(CardObjects, QueuesOfNoDepthTakeNothing) {
  left_.emplace(*left_card_);
  QpRequest request;
  request.domain = left_->domain();
  request.send_cq = request.receive_cq = left_->cq();
  request.limits = {0, 0, 0, 0, 0, false};
  QueuePair* qp = value_of(left_card_->create_qp(request));
  proto::QpAttr a;
  a.state = QpState::init;
  namespace attr = proto::attr;
  ASSERT_TRUE(succeeds(left_card_->modify_qp(
      qp, a, attr::state | attr::pkey_index | attr::port | attr::access_flags, nullptr)));
  EXPECT_NE(left_card_->post_recv(qp, {}), PostResult::ok);
  EXPECT_NE(left_card_->post_send(qp, {}), PostResult::ok);
  succeeds(left_card_->destroy_qp(qp));
}

TEST_F(CardObjects, RefusedAddressesAndMtu) {
  namespace attr = proto::attr;
  auto small = make_card(network_, 3, IpAddress::v4(10, 0, 0, 3), 1500);
  End end(*small);
  proto::QpAttr a;
  a.state = QpState::init;
  ASSERT_TRUE(succeeds(small->modify_qp(
      end.qp(), a, attr::state | attr::pkey_index | attr::port | attr::access_flags, nullptr)));
  a.state = QpState::rtr;
  const std::uint32_t mask = attr::state | attr::address_vector | attr::path_mtu | attr::destination_qp |
                             attr::rq_psn | attr::max_dest_rd_atomic | attr::min_rnr_timer;
  AddressVector to;
  to.destination = left_address;
  a.path_mtu_bytes = 4096;
  EXPECT_FALSE(small->modify_qp(end.qp(), a, mask, &to)) << "1500 bytes carry 1024";
  a.path_mtu_bytes = 1024;
  EXPECT_FALSE(small->modify_qp(end.qp(), a, mask, nullptr));
  to.gid_index = 1;
  EXPECT_FALSE(small->modify_qp(end.qp(), a, mask, &to));
  to.gid_index = -1;
  EXPECT_FALSE(small->modify_qp(end.qp(), a, mask, &to));
  to.gid_index = 0;
  to.destination = *parse_address("fe80::1");
  EXPECT_FALSE(small->modify_qp(end.qp(), a, mask, &to)) << "IPv4 to IPv6";
  to.destination = {};
  EXPECT_FALSE(small->modify_qp(end.qp(), a, mask, &to));
  to.destination = left_address;
  EXPECT_TRUE(succeeds(small->modify_qp(end.qp(), a, mask, &to)));
  AddressVector found;
  EXPECT_EQ(small->query_qp(end.qp(), &found).state, QpState::rtr);
  EXPECT_EQ(found.destination, left_address);
}

TEST_F(CardObjects, SocketThatCannotBeOpenedFailsTheModify) {
  auto card = make_card(network_, 3, FakePort::unusable);
  End end(*card);
  proto::QpAttr a;
  a.state = QpState::init;
  namespace attr = proto::attr;
  ASSERT_TRUE(succeeds(card->modify_qp(
      end.qp(), a, attr::state | attr::pkey_index | attr::port | attr::access_flags, nullptr)));
  a.state = QpState::rtr;
  AddressVector to;
  to.destination = left_address;
  const auto refused = card->modify_qp(end.qp(), a, attr::state | attr::address_vector, &to);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::not_found);
}

TEST_F(CardObjects, DestroyDropsCompletionsAndOverrunGoesToError) {
  EndOptions options;
  options.cq_depth = 4;
  connect_both(options);
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_EQ(left_->post(WrOpcode::write, i, 0, 8), PostResult::ok);
  for (int i = 0; i < 100; ++i) {  // the left side never looks: its engine runs by another queue's polls
    right_->poll();
    ASSERT_EQ(left_card_->poll_cq(left_->cq(), {}), 0);
    std::array<proto::Completion, 1> none;
    CompletionQueue* other = value_of(left_card_->create_cq(1, nullptr, nullptr));
    ASSERT_EQ(left_card_->poll_cq(other, none), 0);
    succeeds(left_card_->destroy_cq(other));
    network_.advance(10us);
  }
  EXPECT_EQ(left_->state(), QpState::err);
  left_->poll();
  EXPECT_EQ(left_->done.size(), 4u) << "what was there before the overrun";
  left_->poll();
  EXPECT_TRUE(left_->overrun);
  right_->destroy_queue_pair();
  right_->poll();
  EXPECT_TRUE(right_->done.empty());
}

TEST_F(CardObjects, DestroyedQueuePairLeavesNoCompletions) {
  connect_both();
  ASSERT_EQ(right_->receive(1, 0, 100), PostResult::ok);
  proto::QpAttr error;
  error.state = QpState::err;
  succeeds(right_card_->modify_qp(right_->qp(), error, proto::attr::state, nullptr));
  right_->destroy_queue_pair();
  right_->poll();
  EXPECT_TRUE(right_->done.empty());
}

TEST_F(CardObjects, ErrorStateFlushesWhatIsPostedAndWhatIsPostedLater) {
  connect_both();
  ASSERT_EQ(right_->receive(1, 0, 100), PostResult::ok);
  proto::QpAttr error;
  error.state = QpState::err;
  succeeds(right_card_->modify_qp(right_->qp(), error, proto::attr::state, nullptr));
  ASSERT_EQ(right_->receive(2, 0, 100), PostResult::ok);
  ASSERT_EQ(right_->post(WrOpcode::send, 3, 0, 10), PostResult::ok);
  right_->poll();
  ASSERT_EQ(right_->done.size(), 3u);
  for (const auto& c : right_->done) EXPECT_EQ(c.status, WcStatus::flushed);
}

TEST_F(CardObjects, ManyQueuePairsShareTheEngine) {
  constexpr std::size_t pairs = 100;
  std::vector<std::unique_ptr<End>> lefts, rights;
  EndOptions options;
  options.memory_bytes = 20000;
  for (std::size_t i = 0; i < pairs; ++i) {
    lefts.push_back(std::make_unique<End>(*left_card_, options));
    rights.push_back(std::make_unique<End>(*right_card_, options));
    connect(*lefts[i], *rights[i]);
    lefts[i]->fill(0, 20000, static_cast<std::uint32_t>(i));
    ASSERT_EQ(lefts[i]->post(WrOpcode::write, i, 0, 20000), PostResult::ok);
  }
  const auto all_done = [&] {
    return std::all_of(lefts.begin(), lefts.end(), [](const auto& end) { return !end->done.empty(); });
  };
  for (int round = 0; round < 20000 && !all_done(); ++round) {
    for (auto& end : lefts) end->poll();
    rights[0]->poll();
    network_.advance(10us);
  }
  ASSERT_TRUE(all_done());
  for (std::size_t i = 0; i < pairs; ++i) {
    EXPECT_FALSE(lefts[i]->failed());
    EXPECT_EQ(lefts[i]->memory(), rights[i]->memory()) << i;
  }
}

}  // namespace
}  // namespace beeline::nic::test
