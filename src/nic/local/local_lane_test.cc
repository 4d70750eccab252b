// Which lane queue pairs take, and what they see of each other's end on the local one; on real sockets.
#include "nic/local/local_lane.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "nic/card_fixture.h"
#include "nic/real_ports.h"
#include "port/udp/udp_port.h"

namespace beeline::nic::test {
namespace {

using proto::PostResult;
using proto::WcStatus;
using proto::WrOpcode;

std::unique_ptr<Card> open_card(std::uint8_t number, Lane lane) {
  const port::Interface interface = interface_with(own_address(number));
  Config config;
  config.lane = lane;
  config.log_level = "off";
  return value_of(Card::create(config, value_of(port::make_udp_port()), {&interface, 1}));
}

void poll_both(End& left, End& right) {
  left.poll();
  right.poll();
}

// One WRITE each way.
void exchange(End& left, End& right) {
  left.done.clear();
  right.done.clear();
  left.fill(0, 5000, 1);
  right.fill(10000, 5000, 2);
  ASSERT_EQ(left.post(WrOpcode::write, 1, 0, 5000), PostResult::ok);
  ASSERT_EQ(right.post(WrOpcode::write, 2, 10000, 5000, 10000), PostResult::ok);
  ASSERT_TRUE(
      until([&] { return !left.done.empty() && !right.done.empty(); }, [&] { poll_both(left, right); }));
  ASSERT_FALSE(left.failed() || right.failed());
  EXPECT_EQ(std::memcmp(left.memory().data(), right.memory().data(), 5000), 0);
  EXPECT_EQ(std::memcmp(left.memory().data() + 10000, right.memory().data() + 10000, 5000), 0);
}

WcStatus first_failure(const End& end) {
  for (const auto& c : end.done)
    if (c.status != WcStatus::success) return c.status;
  return WcStatus::success;
}

struct Choice {
  const char* name;
  Lane left, right;
  bool shared;  // what becomes of it
};
class LaneChoice : public ::testing::TestWithParam<Choice> {};
INSTANTIATE_TEST_SUITE_P(, LaneChoice,
                         ::testing::Values(Choice{"AutoAuto", Lane::automatic, Lane::automatic, true},
                                           Choice{"AutoWire", Lane::automatic, Lane::wire, false},
                                           Choice{"WireAuto", Lane::wire, Lane::automatic, false},
                                           Choice{"LocalAuto", Lane::local, Lane::automatic, true},
                                           Choice{"WireWire", Lane::wire, Lane::wire, false}),
                         [](const auto& row) { return row.param.name; });

TEST_P(LaneChoice, BothEndsAgree) {
  auto left_card = open_card(1, GetParam().left), right_card = open_card(2, GetParam().right);
  // Both send at once; then, anew, one before the other.
  for (int round = 0; round < 10; ++round) {
    End left(*left_card, patient_options()), right(*right_card, patient_options());
    connect(left, right);
    if (round % 2 == 1) {
      ASSERT_EQ(right.post(WrOpcode::write, 1, 0, 8), PostResult::ok);
      ASSERT_TRUE(until([&] { return !right.done.empty(); }, [&] { poll_both(left, right); }));
    }
    ASSERT_NO_FATAL_FAILURE(exchange(left, right));
  }
  for (Card* card : {left_card.get(), right_card.get()}) {
    const CardCounters counters = card->counters();
    EXPECT_EQ(counters.local_payload_received > 0, GetParam().shared);
    EXPECT_EQ(counters.wire_payload_received > 0, !GetParam().shared);
  }
}

TEST(LocalLane, DemandedButImpossibleIsAnErrorOfTheFirstSend) {
  auto left_card = open_card(1, Lane::local), right_card = open_card(2, Lane::wire);
  End left(*left_card, patient_options()), right(*right_card, patient_options());
  connect(left, right);
  ASSERT_EQ(left.post(WrOpcode::write, 1, 0, 8), PostResult::ok);
  ASSERT_TRUE(until([&] { return left.failed(); }, [&] { poll_both(left, right); }));
  EXPECT_EQ(left.state(), proto::QpState::err);
  EXPECT_EQ(left_card->counters().wire_payload_sent, 0u);
}

TEST(LocalLane, APeerThatIsNotReadyYetIsAskedAgain) {
  auto left_card = open_card(1, Lane::local), right_card = open_card(2, Lane::local);
  End left(*left_card, patient_options()), right(*right_card, patient_options());
  left.connect(right.address());
  ASSERT_EQ(left.post(WrOpcode::write, 1, 0, 8), PostResult::ok);
  std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(left.done.empty());
  right.connect(left.address());
  ASSERT_TRUE(until([&] { return !left.done.empty(); }, [&] { poll_both(left, right); }));
  EXPECT_FALSE(left.failed());
}

TEST(LocalLane, ThreadsThatSendFirstAtOnceMeetOnOneLane) {
  auto left_card = open_card(1, Lane::local), right_card = open_card(2, Lane::local);
  for (int round = 0; round < 50; ++round) {
    End left(*left_card, patient_options()), right(*right_card, patient_options());
    connect(left, right);
    std::atomic<int> ready{0};
    const auto send = [&](End& end) {
      ++ready;
      while (ready != 2) std::this_thread::yield();
      EXPECT_EQ(end.post(WrOpcode::write, 1, 0, 3000), PostResult::ok);
      EXPECT_TRUE(until([&] { return !end.done.empty(); }, [&] { end.poll(); }));
      EXPECT_FALSE(end.failed());
    };
    std::thread other([&] { send(right); });
    send(left);
    other.join();
  }
}

TEST(LocalLane, AfterResetTheLaneIsChosenAnew) {
  auto left_card = open_card(1, Lane::local), right_card = open_card(2, Lane::local);
  End left(*left_card, patient_options()), right(*right_card, patient_options());
  for (int round = 0; round < 5; ++round) {
    connect(left, right);
    ASSERT_NO_FATAL_FAILURE(exchange(left, right));
    for (End* end : {&left, &right}) {
      proto::QpAttr reset;
      reset.state = proto::QpState::reset;
      ASSERT_TRUE(succeeds(end->card().modify_qp(end->qp(), reset, proto::attr::state, nullptr)));
    }
  }
}

// On the wire, too, nobody would answer.
TEST(LocalLane, APeerInErrorOrDestroyedAnswersNothing) {
  auto left_card = open_card(1, Lane::local), right_card = open_card(2, Lane::local);
  for (const bool destroyed : {false, true}) {
    End left(*left_card, patient_options()), right(*right_card, patient_options());
    connect(left, right);
    ASSERT_NO_FATAL_FAILURE(exchange(left, right));
    if (destroyed) {
      right.destroy_queue_pair();
    } else {
      proto::QpAttr error;
      error.state = proto::QpState::err;
      ASSERT_TRUE(succeeds(right_card->modify_qp(right.qp(), error, proto::attr::state, nullptr)));
    }
    ASSERT_EQ(left.post(WrOpcode::write, 7, 0, 8), PostResult::ok);
    ASSERT_EQ(left.post(WrOpcode::write, 8, 0, 8), PostResult::ok);
    ASSERT_TRUE(until([&] { return left.done.size() == 3; }, [&] { poll_both(left, right); }));
    EXPECT_EQ(first_failure(left), WcStatus::retry_exceeded);
    EXPECT_EQ(left.done.back().status, WcStatus::flushed);
  }
}

// A message that nobody took yet arrives, although its sender has gone meanwhile.
TEST(LocalLane, WhatWasSentBeforeTheEndArrives) {
  auto left_card = open_card(1, Lane::local), right_card = open_card(2, Lane::local);
  End left(*left_card, patient_options()), right(*right_card, patient_options());
  connect(left, right);
  ASSERT_NO_FATAL_FAILURE(exchange(left, right));
  ASSERT_EQ(left.post(WrOpcode::send, 1, 0, 200), PostResult::ok);
  left.destroy_queue_pair();
  right.done.clear();
  ASSERT_EQ(right.receive(5, 20000, 500), PostResult::ok);
  ASSERT_TRUE(until([&] { return !right.done.empty(); }, [&] { right.poll(); }));
  EXPECT_EQ(right.done[0].status, WcStatus::success);
  EXPECT_EQ(right.done[0].byte_length, 200u);
}

}  // namespace
}  // namespace beeline::nic::test
