// Queue pair 1 between cards on a network in memory: what an agent gets, what it sends, and what happens to
// datagrams that are for another process of the host.
#include "nic/management.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include "nic/card_fixture.h"
#include "nic/fake_network.h"
#include "nic/real_ports.h"
#include "wire/cm/messages.h"
#include "wire/icrc.h"

namespace beeline::nic::test {
namespace {

namespace cm = wire::cm;
constexpr IpAddress address_a = IpAddress::v4(10, 0, 0, 1), address_b = IpAddress::v4(10, 0, 0, 2);

class RecordingAgent final : public ManagementAgent {
 public:
  struct Heard {
    IpAddress local, remote;
    std::vector<std::byte> bytes;
    bool handed_over;
  };
  Verdict handle_mad(TimePoint, const IpAddress& local, const IpAddress& remote, Bytes mad,
                     bool handed_over) override {
    heard.push_back({local, remote, {mad.begin(), mad.end()}, handed_over});
    return verdict;
  }
  void handle_timeout(TimePoint) override {
    ++timeouts;
    timeout = TimePoint::never();
  }
  TimePoint next_timeout() const override { return timeout; }
  std::size_t poll_transmit(TimePoint, std::span<OutMad> out) override {
    std::size_t count = 0;
    for (; count < out.size() && !to_send.empty(); ++count) {
      out[count] = to_send.front();
      to_send.pop_front();
    }
    return count;
  }

  Verdict verdict{Fate::taken};
  std::deque<OutMad> to_send;
  std::vector<Heard> heard;
  TimePoint timeout = TimePoint::never();
  int timeouts = 0;
};

class ManagementTest : public testing::Test {
 public:
  ~ManagementTest() override {
    a_->set_management_agent(nullptr);
    b_->set_management_agent(nullptr);
  }

 protected:
  ManagementTest() {
    a_ = make(1, address_a);
    b_ = make(2, address_b);
    a_->set_management_agent(&agent_a_);
    b_->set_management_agent(&agent_b_);
  }
  std::unique_ptr<Card> make(std::uint8_t slot, const IpAddress& address) {
    const port::Interface interface = interface_with(address);
    auto card = value_of(Card::create({}, network_.make_port(slot), {&interface, 1}, false));
    succeeds(card->open_management(address));
    cq_.push_back(value_of(card->create_cq(4, nullptr, nullptr)));
    return card;
  }
  void drive(int rounds = 8) {
    std::array<proto::Completion, 1> none;
    for (int i = 0; i < rounds; ++i) {
      a_->poll_cq(cq_[0], none);
      b_->poll_cq(cq_[1], none);
    }
  }
  // What the network carries for a management datagram.
  std::vector<std::byte> frame(const std::array<std::byte, mad_bytes>& mad,
                               std::uint32_t qkey = cm::management_qkey) {
    wire::Headers headers;
    headers.bth.opcode = wire::Opcode::ud_send_only;
    headers.bth.destination = cm::management_qpn;
    headers.deth = {qkey, cm::management_qpn};
    std::vector<std::byte> bytes(wire::max_header_bytes);
    bytes.resize(wire::emit(headers, bytes));
    wire::IpUdp ip_udp;
    ip_udp.source = address_a;
    ip_udp.destination = address_b;
    ip_udp.source_port = 0xC001;
    ip_udp.udp_payload_bytes = static_cast<std::uint16_t>(bytes.size() + mad_bytes + wire::icrc_bytes);
    wire::Icrc crc(ip_udp);
    crc.update_headers(bytes);
    crc.update(mad);
    bytes.insert(bytes.end(), mad.begin(), mad.end());
    bytes.resize(bytes.size() + wire::icrc_bytes);
    wire::store_icrc(bytes.data() + bytes.size() - wire::icrc_bytes, crc.value());
    return bytes;
  }
  void inject(const cm::Message& message) {
    network_.inject(address_a, address_b, 0xC001, frame(cm::emit({7, 0, message})));
    drive();
  }
  // What card a's agent has heard, parsed.
  std::vector<cm::Message> answers() {
    std::vector<cm::Message> messages;
    for (const auto& heard : agent_a_.heard) messages.push_back(cm::parse(heard.bytes).value().message);
    return messages;
  }

  FakeNetwork network_;
  std::vector<CompletionQueue*> cq_;
  RecordingAgent agent_a_, agent_b_;
  std::unique_ptr<Card> a_, b_;
};

TEST_F(ManagementTest, DatagramsGoFromAgentToAgent) {
  OutMad mad{address_a, address_b, {}};
  for (std::size_t i = 0; i < mad_bytes; ++i) mad.bytes[i] = static_cast<std::byte>(i);
  agent_a_.to_send = {mad, mad};
  a_->serve_management();
  drive();
  ASSERT_EQ(agent_b_.heard.size(), 2u);
  EXPECT_EQ(agent_b_.heard[0].local, address_b);
  EXPECT_EQ(agent_b_.heard[0].remote, address_a);
  EXPECT_FALSE(agent_b_.heard[0].handed_over);
  EXPECT_TRUE(std::equal(mad.bytes.begin(), mad.bytes.end(), agent_b_.heard[0].bytes.begin()));
  EXPECT_EQ(a_->counters().management_sent, 2u);
  EXPECT_EQ(b_->counters().management_received, 2u);
}

TEST_F(ManagementTest, AFullSocketLosesNothing) {
  network_.set_faults({.no_room = 0.5});
  for (int i = 0; i < 20; ++i) agent_a_.to_send.push_back({address_a, address_b, {}});
  a_->serve_management();
  ASSERT_TRUE(until([&] { return agent_b_.heard.size() == 20; },
                    [&] {
                      network_.advance(2ms);
                      drive(1);
                    }));
}

TEST_F(ManagementTest, TimersOfTheAgentAreTheEngines) {
  agent_a_.timeout = a_->now() + 5ms;
  a_->serve_management();
  drive();
  EXPECT_EQ(agent_a_.timeouts, 0);
  network_.advance(6ms);
  drive();
  EXPECT_EQ(agent_a_.timeouts, 1);
}

TEST_F(ManagementTest, OnlyManagementDatagramsAreTaken) {
  const auto mad = cm::emit({1, 0, cm::Rtu{}});
  network_.inject(address_a, address_b, 0xC001, frame(mad, 0x11111111));
  drive();
  EXPECT_EQ(b_->counters().management_odd, 1u);
  auto damaged = frame(mad);
  damaged[100] ^= std::byte{1};
  network_.inject(address_a, address_b, 0xC001, damaged);
  drive();
  EXPECT_EQ(b_->counters().icrc_bad, 1u);
  EXPECT_TRUE(agent_b_.heard.empty());
}

TEST_F(ManagementTest, AServiceThatNobodyHasIsRefusedAfterAMoment) {
  agent_b_.verdict = {ManagementAgent::Fate::for_everybody};
  cm::Req req;
  req.local_id = cm::CommId{0x0100'0005};
  inject(req);
  inject(req);  // repeated: it waits already
  EXPECT_TRUE(agent_a_.heard.empty());
  network_.advance(3s);
  drive();
  ASSERT_EQ(answers().size(), 1u);
  const auto rej = std::get<cm::Rej>(answers()[0]);
  EXPECT_EQ(rej.remote_id, req.local_id);
  EXPECT_EQ(rej.reason, cm::RejectReason::invalid_service_id);
  network_.advance(10s);
  drive();
  EXPECT_EQ(answers().size(), 1u) << "once";
  cm::SidrReq sidr;
  sidr.request_id = cm::CommId{0x0100'0006};
  inject(sidr);
  network_.advance(3s);
  drive();
  ASSERT_EQ(answers().size(), 2u);
  EXPECT_EQ(std::get<cm::SidrRep>(answers()[1]).status, cm::SidrStatus::unsupported);
}

TEST_F(ManagementTest, WhoseProcessIsGoneIsAgreedTo) {
  agent_b_.verdict = {ManagementAgent::Fate::for_slot, 0x55};
  cm::Dreq dreq;
  dreq.local_id = cm::CommId{0x0100'0005};
  dreq.remote_id = cm::CommId{0x5500'0001};
  inject(dreq);
  ASSERT_EQ(answers().size(), 1u);
  const auto drep = std::get<cm::Drep>(answers()[0]);
  EXPECT_EQ(drep.remote_id, dreq.local_id);
  EXPECT_EQ(drep.local_id, dreq.remote_id);
  inject(cm::Rtu{});
  EXPECT_EQ(answers().size(), 1u) << "nothing to say to the rest";
}

}  // namespace
}  // namespace beeline::nic::test
