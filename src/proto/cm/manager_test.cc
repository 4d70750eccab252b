#include "proto/cm/manager.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "proto/cm/testing.h"

namespace beeline::proto::cm {
namespace {

using test::Pair;
using wire::cm::Mad;

Bytes text(const std::string& s) { return std::as_bytes(std::span(s)); }

// Takes the next event and says which it was.
Event take(Manager& manager, EventKind kind) {
  auto event = manager.poll_event();
  EXPECT_TRUE(event) << "no event";
  if (!event) return {};
  EXPECT_EQ(event->kind, kind);
  return *event;
}

struct Connected {
  CommId a, b;
};
Connected connect(Pair& pair) {
  EXPECT_TRUE(pair.b->listen(test::service, std::nullopt, 8));
  const CommId a = pair.a->connect(pair.now, pair.request(), text("hello")).value();
  pair.run(10s);
  const Event request = take(*pair.b, EventKind::request);
  EXPECT_TRUE(pair.b->reply(pair.now, request.connection, pair.answer(), text("welcome")));
  pair.run(10s);
  take(*pair.a, EventKind::response);
  EXPECT_TRUE(pair.a->ready(pair.now, a, {}));
  pair.run(10s);
  take(*pair.b, EventKind::established);
  return {a, request.connection};
}

TEST(Manager, ConnectsAndDisconnects) {
  Pair pair(1);
  ASSERT_TRUE(pair.b->listen(test::service, test::address_b, 8));
  const CommId a = pair.a->connect(pair.now, pair.request(), text("hello")).value();
  EXPECT_EQ(a.value >> 24, 3u) << "the slot";
  pair.run(1ms);
  const Event request = take(*pair.b, EventKind::request);
  EXPECT_EQ(request.end.qpn, Qpn{0x030011});
  EXPECT_EQ(request.end.psn, Psn{0x123456});
  EXPECT_EQ(request.end.responder_resources, 4);
  EXPECT_EQ(request.end.initiator_depth, 2);
  EXPECT_EQ(request.end.path_mtu, 3);
  EXPECT_EQ(request.remote, test::address_a);
  EXPECT_EQ(request.remote_port, 40000);
  EXPECT_EQ(request.data_bytes, 56);
  EXPECT_EQ(std::memcmp(request.data.data(), "hello", 6), 0);
  ASSERT_TRUE(pair.b->reply(pair.now, request.connection, pair.answer(), text("welcome")));
  pair.run(1ms);
  const Event response = take(*pair.a, EventKind::response);
  EXPECT_EQ(response.end.qpn, Qpn{0x070022});
  EXPECT_EQ(response.end.psn, Psn{0x654321});
  EXPECT_EQ(response.end.ack_timeout, 19);
  EXPECT_EQ(std::memcmp(response.data.data(), "welcome", 8), 0);
  ASSERT_TRUE(pair.a->ready(pair.now, a, {}));
  pair.run(1ms);
  take(*pair.b, EventKind::established);
  ASSERT_TRUE(pair.a->disconnect(pair.now, a));
  EXPECT_TRUE(pair.a->is_parting());
  pair.run(1ms);
  take(*pair.b, EventKind::disconnected);
  EXPECT_FALSE(pair.a->poll_event()) << "the other side has not agreed yet";
  ASSERT_TRUE(pair.b->disconnect(pair.now, request.connection));
  pair.run(1ms);
  EXPECT_FALSE(pair.a->is_parting());
  take(*pair.a, EventKind::disconnected);
  pair.run(10s);
  take(*pair.a, EventKind::timewait_exit);
  take(*pair.b, EventKind::timewait_exit);
  EXPECT_EQ(pair.a->connections() + pair.b->connections(), 0u);
}

TEST(Manager, APartingIsRepeatedForWhoWillNotBeThereLater) {
  Pair pair(1);
  const auto [a, b] = connect(pair);
  pair.a->repeat_partings(pair.now);
  EXPECT_FALSE(pair.a->has_outgoing()) << "nobody parts";
  ASSERT_TRUE(pair.a->disconnect(pair.now, a));
  pair.run(1ms);
  take(*pair.b, EventKind::disconnected);
  EXPECT_FALSE(pair.a->has_outgoing());
  pair.a->repeat_partings(pair.now);
  EXPECT_TRUE(pair.a->has_outgoing());
  pair.run(1ms);
  EXPECT_FALSE(pair.b->poll_event()) << "heard once";
  ASSERT_TRUE(pair.b->disconnect(pair.now, b));
  pair.run(1ms);
  pair.a->repeat_partings(pair.now);
  EXPECT_FALSE(pair.a->has_outgoing()) << "agreed";
}

TEST(Manager, EveryConnectionSurvivesALossyWire) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Pair pair(seed, {.loss = 0.25, .duplicate = 0.2, .reorder = 0.3, .corrupt = 0.05});
    ASSERT_TRUE(pair.b->listen(test::service, std::nullopt, 8));
    const CommId a = pair.a->connect(pair.now, pair.request(), {}).value();
    pair.run(60s);
    const auto request = pair.b->poll_event();
    ASSERT_TRUE(request) << "seed " << seed;
    ASSERT_TRUE(pair.b->reply(pair.now, request->connection, pair.answer(), {}));
    pair.run(60s);
    const auto response = pair.a->poll_event();
    ASSERT_TRUE(response) << "seed " << seed;
    ASSERT_EQ(response->kind, EventKind::response) << "seed " << seed;
    ASSERT_TRUE(pair.a->ready(pair.now, a, {}));
    pair.run(60s);
    const auto established = pair.b->poll_event();
    ASSERT_TRUE(established) << "seed " << seed;
    EXPECT_EQ(established->kind, EventKind::established) << "seed " << seed;
    ASSERT_TRUE(pair.b->disconnect(pair.now, request->connection));
    ASSERT_TRUE(pair.a->disconnect(pair.now, a));  // both at once
    pair.run(120s);
    EXPECT_EQ(pair.a->connections() + pair.b->connections(), 0u) << "seed " << seed;
    for (Manager* manager : {pair.a.get(), pair.b.get()}) {
      take(*manager, EventKind::disconnected);
      take(*manager, EventKind::timewait_exit);
      EXPECT_FALSE(manager->poll_event());
    }
  }
}

TEST(Manager, NobodyThereIsUnreachable) {
  Pair pair(1, {.loss = 1});
  ASSERT_TRUE(pair.a->connect(pair.now, pair.request(), {}));
  pair.run(60s);
  EXPECT_FALSE(pair.a->poll_event()) << "Linux tries for longer than a minute, and so do we";
  pair.run(60s);
  take(*pair.a, EventKind::unreachable);
  EXPECT_EQ(pair.a->connections(), 0u);
}

TEST(Manager, RejectionsCarryTheirReason) {
  Pair pair(1);
  ASSERT_TRUE(pair.b->listen(test::service, std::nullopt, 8));
  ASSERT_TRUE(pair.a->connect(pair.now, pair.request(), {}));
  pair.run(1ms);
  const Event request = take(*pair.b, EventKind::request);
  ASSERT_TRUE(pair.b->reject(pair.now, request.connection, RejectReason::consumer, text("no")));
  pair.run(1ms);
  const Event rejected = take(*pair.a, EventKind::rejected);
  EXPECT_EQ(rejected.reason, RejectReason::consumer);
  EXPECT_EQ(rejected.data_bytes, 148);
  EXPECT_EQ(std::memcmp(rejected.data.data(), "no", 3), 0);
  EXPECT_EQ(pair.a->connections() + pair.b->connections(), 0u);
}

TEST(Manager, AServiceOnAnotherAddressIsRefused) {
  Pair pair(1);
  ASSERT_TRUE(pair.b->listen(test::service, IpAddress::v4(10, 0, 0, 9), 8));
  ASSERT_TRUE(pair.a->connect(pair.now, pair.request(), {}));
  pair.run(1ms);
  EXPECT_EQ(take(*pair.a, EventKind::rejected).reason, RejectReason::invalid_service_id);
}

TEST(Manager, WhoThinksLongSaysSo) {
  Pair pair(1);
  ASSERT_TRUE(pair.b->listen(test::service, std::nullopt, 8));
  const CommId a = pair.a->connect(pair.now, pair.request(), {}).value();
  pair.run(30s);  // repeated REQs are answered with MRA, and then rest
  const Event request = take(*pair.b, EventKind::request);
  EXPECT_FALSE(pair.b->poll_event()) << "one request, however often it comes";
  ASSERT_TRUE(pair.b->reply(pair.now, request.connection, pair.answer(), {}));
  pair.run(60s);
  take(*pair.a, EventKind::response);
  ASSERT_TRUE(pair.a->ready(pair.now, a, {}));
  pair.run(1ms);
  take(*pair.b, EventKind::established);
}

TEST(Manager, TrafficBeforeTheRtuEstablishes) {
  Pair pair(1);
  ASSERT_TRUE(pair.b->listen(test::service, std::nullopt, 8));
  ASSERT_TRUE(pair.a->connect(pair.now, pair.request(), {}));
  pair.run(1ms);
  const Event request = take(*pair.b, EventKind::request);
  EXPECT_FALSE(pair.b->note_traffic(pair.now, request.connection)) << "before the reply";
  ASSERT_TRUE(pair.b->reply(pair.now, request.connection, pair.answer(), {}));
  ASSERT_TRUE(pair.b->note_traffic(pair.now, request.connection));
  take(*pair.b, EventKind::established);
  EXPECT_EQ(pair.b->state(request.connection), State::established);
}

TEST(Manager, AQueuePairHasOneConnection) {
  Pair pair(1);
  connect(pair);
  ASSERT_TRUE(pair.a->connect(pair.now, pair.request(), {}));
  pair.run(1ms);
  EXPECT_EQ(take(*pair.a, EventKind::rejected).reason, RejectReason::stale_connection);
  take(*pair.b, EventKind::disconnected);  // whoever asks again has forgotten the first
  ASSERT_TRUE(pair.a->connect(pair.now, pair.request(), {}));
  pair.run(1ms);
  take(*pair.b, EventKind::request);
}

// A REQ from elsewhere that names the same queue pair is a stranger's claim.
TEST(Manager, NobodyElseCanClaimAPeersQueuePair) {
  Pair pair(1);
  const Connected ids = connect(pair);
  const IpAddress elsewhere = IpAddress::v4(10, 0, 0, 9);
  wire::cm::Req req;
  req.local_id = CommId{0x0300'0077};
  req.service_id = test::service;
  req.local_guid = pair.request().end.guid;
  req.local_qpn = pair.request().end.qpn;
  req.path_mtu = 3;
  req.primary.local = elsewhere;
  req.primary.remote = test::address_b;
  emit(wire::cm::IpHeader{elsewhere, test::address_b, 1}, req.private_data);
  pair.deliver({elsewhere, test::address_b, emit(Mad{1, 0, req})});
  EXPECT_EQ(take(*pair.b, EventKind::request).remote, elsewhere);
  EXPECT_EQ(pair.b->state(ids.b), State::established);
  EXPECT_EQ(pair.b->counters().stale, 0u);
}

TEST(Manager, EndingAConnectionTakesBothIdsAndThePeersAddress) {
  Pair pair(1);
  const Connected ids = connect(pair);
  const auto disconnect = [&](const IpAddress& from, CommId local, CommId remote, Qpn qpn = Qpn{0x070022}) {
    wire::cm::Dreq dreq;
    dreq.local_id = local;
    dreq.remote_id = remote;
    dreq.remote_qpn = qpn;
    pair.deliver({from, test::address_b, emit(Mad{1, 0, dreq})});
  };
  disconnect(test::address_a, CommId{}, ids.b);
  disconnect(test::address_a, CommId{ids.a.value ^ 1}, ids.b);
  disconnect(IpAddress::v4(10, 0, 0, 9), ids.a, ids.b);
  disconnect(test::address_a, ids.a, ids.b, Qpn{0x070023});
  EXPECT_EQ(pair.b->counters().not_from_peer, 4u);
  EXPECT_EQ(pair.b->state(ids.b), State::established);
  EXPECT_FALSE(pair.b->poll_event());
  disconnect(test::address_a, ids.a, ids.b);
  take(*pair.b, EventKind::disconnected);
}

TEST(Manager, TheForgottenTellTheirPeer) {
  Pair pair(1);
  const Connected ids = connect(pair);
  pair.a->forget(pair.now, ids.a);
  pair.run(1ms);
  take(*pair.b, EventKind::disconnected);
  pair.b->forget(pair.now, ids.b);
  pair.run(30s);
  EXPECT_FALSE(pair.a->poll_event());
  EXPECT_FALSE(pair.b->poll_event());
  EXPECT_EQ(pair.a->connections() + pair.b->connections(), 0u);
}

TEST(Manager, DisconnectingWhatThePeerHasForgottenEndsAtOnce) {
  Pair pair(1);
  const Connected ids = connect(pair);
  auto draw = [] { return std::uint64_t{99}; };
  pair.b = std::make_unique<Manager>(std::uint8_t{7}, draw);  // as after a crash
  ASSERT_TRUE(pair.a->disconnect(pair.now, ids.a));
  pair.run(1ms);
  take(*pair.a, EventKind::disconnected);
}

TEST(Manager, ResolvesServices) {
  Pair pair(1);
  const std::uint64_t udp = wire::cm::service_id(wire::cm::PortSpace::udp, 7174);
  ASSERT_TRUE(pair.b->listen(udp, std::nullopt, 8, Offer::datagrams));
  ConnectRequest request = pair.request();
  request.service_id = udp;
  ASSERT_TRUE(pair.a->resolve_service(pair.now, request, text("who")));
  pair.run(1ms);
  const Event asked = take(*pair.b, EventKind::sidr_request);
  EXPECT_EQ(asked.data_bytes, 180);
  EXPECT_EQ(std::memcmp(asked.data.data(), "who", 4), 0);
  ASSERT_TRUE(pair.b->answer_service(pair.now, asked.connection, SidrStatus::success, Qpn{0x070033},
                                     wire::cm::udp_qkey, text("me")));
  pair.run(1ms);
  const Event answer = take(*pair.a, EventKind::sidr_response);
  EXPECT_EQ(answer.sidr_status, SidrStatus::success);
  EXPECT_EQ(answer.end.qpn, Qpn{0x070033});
  EXPECT_EQ(answer.end.qkey, 0x01234567u);
  EXPECT_EQ(answer.data_bytes, 136);
  EXPECT_EQ(pair.a->connections() + pair.b->connections(), 0u);
}

TEST(Manager, EverythingIsBounded) {
  Limits limits;
  limits.connections = 4;
  limits.requests_at_once = 6;
  limits.requests_per_second = 1;
  Pair pair(1, {}, limits);
  ASSERT_TRUE(pair.b->listen(test::service, std::nullopt, 2));
  for (std::uint32_t i = 0; i < 20; ++i) {
    wire::cm::Req req;
    req.local_id = CommId{0x0300'0001 + i};
    req.service_id = test::service;
    req.local_qpn = Qpn{100 + i};
    req.path_mtu = 3;
    req.primary.local = test::address_a;
    req.primary.remote = test::address_b;
    emit(wire::cm::IpHeader{test::address_a, test::address_b, 1}, req.private_data);
    pair.deliver({test::address_a, test::address_b, emit(Mad{i, 0, req})});
  }
  EXPECT_EQ(pair.b->connections(), 2u) << "the backlog";
  EXPECT_EQ(pair.b->counters().over_limit, 18u);
  for (std::uint32_t i = 0; i < 4; ++i) {
    ConnectRequest request = pair.request();
    request.end.qpn = Qpn{i + 1};
    ASSERT_TRUE(pair.a->connect(pair.now, request, {}));
  }
  EXPECT_EQ(pair.a->connect(pair.now, pair.request(), {}).error().code, Errc::resource_exhausted);
}

// A program that expects one would not know what to do with another.
TEST(Manager, AListenerIsAskedForWhatItOffers) {
  for (const Offer offer : {Offer::unreliable, Offer::datagrams}) {
    Pair pair(1);
    ASSERT_TRUE(pair.b->listen(test::service, std::nullopt, 8, offer));
    ASSERT_TRUE(pair.a->connect(pair.now, pair.request(), {}));
    pair.run(1ms);
    EXPECT_EQ(take(*pair.a, EventKind::rejected).reason, RejectReason::invalid_transport);
    EXPECT_FALSE(pair.b->poll_event());
  }
  Pair pair(1);
  ASSERT_TRUE(pair.b->listen(test::service, std::nullopt, 8));
  ASSERT_TRUE(pair.a->resolve_service(pair.now, pair.request(), {}));
  pair.run(1ms);
  EXPECT_EQ(take(*pair.a, EventKind::sidr_response).sidr_status, SidrStatus::unsupported);
  ConnectRequest request = pair.request();
  request.transport = wire::cm::Transport::uc;
  ASSERT_TRUE(pair.a->connect(pair.now, request, {}));
  pair.run(1ms);
  EXPECT_EQ(take(*pair.a, EventKind::rejected).reason, RejectReason::invalid_transport);
  EXPECT_FALSE(pair.b->poll_event());
}

// A request of somebody who does not listen for the answer: a forged one.
CommId forged_request(Pair& pair, std::uint32_t number, const IpAddress& from = test::address_a,
                      std::uint8_t response_timeout = 20) {
  wire::cm::Req req;
  req.local_id = CommId{0x0300'0001 + number};
  req.service_id = test::service;
  req.local_guid = 0xF;
  req.local_qpn = Qpn{100 + number};
  req.path_mtu = 3;
  req.local_response_timeout = response_timeout;
  req.primary.local = from;
  req.primary.remote = test::address_b;
  emit(wire::cm::IpHeader{from, test::address_b, 1}, req.private_data);
  pair.deliver({from, test::address_b, emit(Mad{number, 0, req})});
  const auto event = pair.b->poll_event();
  return event && event->kind == EventKind::request ? event->connection : CommId{};
}

TEST(Manager, TheBacklogIsOfRequestsThatNobodyHasTaken) {
  Pair pair(1);
  ASSERT_TRUE(pair.b->listen(test::service, std::nullopt, 1));
  const CommId first = forged_request(pair, 0);
  EXPECT_EQ(forged_request(pair, 1), CommId{}) << "the first has not been taken";
  pair.b->note_seen(first);
  pair.b->note_seen(first);
  const CommId second = forged_request(pair, 1);
  EXPECT_NE(second, CommId{});
  EXPECT_EQ(forged_request(pair, 2), CommId{});
  EXPECT_TRUE(pair.b->reply(pair.now, first, pair.answer(), {}));
  EXPECT_EQ(forged_request(pair, 2), CommId{}) << "an answer makes no room twice";
}

TEST(Manager, AForgedAddressIsNotCalledAgainAndAgain) {
  Limits limits;
  limits.repeats_at_once = 10;
  limits.repeats_per_second = 1;
  Pair pair(1, {.loss = 1}, limits);
  ASSERT_TRUE(pair.b->listen(test::service, std::nullopt, 1000));
  for (std::uint32_t i = 0; i < 100; ++i)
    ASSERT_TRUE(pair.b->reply(pair.now, forged_request(pair, i), pair.answer(), {}));
  pair.run(60s);
  EXPECT_LE(pair.b->counters().repeated, 10u + 60u);
  pair.run(60s);
  EXPECT_EQ(pair.b->connections(), 0u);
}

TEST(Manager, NoRequestSaysForHowLongItIsAnswered) {
  Pair pair(1, {.loss = 1});
  ASSERT_TRUE(pair.b->listen(test::service, std::nullopt, 8));
  ASSERT_TRUE(pair.b->reply(pair.now, forged_request(pair, 0, test::address_a, 31), pair.answer(), {}));
  pair.run(120s);
  EXPECT_EQ(pair.b->connections(), 0u);
}

TEST(Manager, WhoNeverAnswersMakesRoomForOthers) {
  Limits limits;
  limits.connections = 4;
  Pair pair(1, {}, limits);
  ASSERT_TRUE(pair.b->listen(test::service, std::nullopt, 8));
  const IpAddress nobody = IpAddress::v4(10, 0, 0, 9);
  for (std::uint32_t i = 0; i < 4; ++i)
    ASSERT_TRUE(pair.b->reply(pair.now, forged_request(pair, i, nobody), pair.answer(), {}));
  EXPECT_EQ(forged_request(pair, 4), CommId{}) << "they may still answer";
  std::array<OutMessage, 16> lost;
  pair.now = pair.now + 1s;
  pair.b->handle_timeout(pair.now);
  while (pair.b->poll_transmit(lost) > 0) {
  }
  const CommId newcomer = pair.a->connect(pair.now, pair.request(), {}).value();
  pair.run(1ms);
  take(*pair.b, EventKind::unreachable);
  take(*pair.b, EventKind::request);
  EXPECT_EQ(pair.a->state(newcomer), State::req_sent);
  EXPECT_EQ(pair.b->connections(), 4u);
}

TEST(Manager, MessagesForOtherProcessesSayWhose) {
  Pair pair(1);
  wire::cm::Rtu rtu;
  rtu.remote_id = CommId{0x2A00'0001};
  const auto verdict = pair.b->handle_mad(pair.now, test::address_b, test::address_a, emit(Mad{1, 0, rtu}));
  EXPECT_EQ(verdict.fate, Manager::Fate::for_slot);
  EXPECT_EQ(verdict.slot, 0x2A);
  wire::cm::Req req;
  req.service_id = test::service;
  const auto asked = pair.b->handle_mad(pair.now, test::address_b, test::address_a, emit(Mad{1, 0, req}));
  EXPECT_EQ(asked.fate, Manager::Fate::not_here);
}

// Any message at any time, with ids that exist: nothing breaks, time runs out for everything, nothing stays.
TEST(Manager, SurvivesAHostilePeer) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Prng prng(seed);
    Pair pair(seed, {.loss = 0.1, .duplicate = 0.1, .reorder = 0.1});
    ASSERT_TRUE(pair.b->listen(test::service, std::nullopt, 4));
    std::vector<CommId> known{CommId{0x0300'0001}, CommId{0x0700'0001}};
    for (int step = 0; step < 60; ++step) {
      ConnectRequest request = pair.request();
      request.end.qpn = Qpn{static_cast<std::uint32_t>(prng.below(4))};
      if (prng.chance(0.3))
        if (const auto id = pair.a->connect(pair.now, request, {})) known.push_back(*id);
      while (auto event = pair.b->poll_event()) {
        known.push_back(event->connection);
        if (prng.chance(0.5)) (void)pair.b->reply(pair.now, event->connection, pair.answer(), {});
        if (prng.chance(0.1)) (void)pair.b->reject(pair.now, event->connection, RejectReason::consumer, {});
        if (prng.chance(0.1)) (void)pair.b->disconnect(pair.now, event->connection);
      }
      while (auto event = pair.a->poll_event())
        if (prng.chance(0.7)) (void)pair.a->ready(pair.now, event->connection, {});
      std::array<std::byte, wire::cm::mad_bytes> bytes;
      for (std::byte& b : bytes) b = static_cast<std::byte>(prng.next());
      const std::uint8_t front[] = {1, 7, 2, 3, 0, 0, 0, 0};
      std::memcpy(bytes.data(), front, sizeof front);
      store_be16(bytes.data() + 16, static_cast<std::uint16_t>(0x10 + prng.below(9)));
      store_be32(bytes.data() + 24, known[prng.below(known.size())].value);
      store_be32(bytes.data() + 28, known[prng.below(known.size())].value);
      const bool to_a = prng.chance(0.5);
      pair.deliver(
          {to_a ? test::address_b : test::address_a, to_a ? test::address_a : test::address_b, bytes});
      if (prng.chance(0.5)) pair.run(Duration{static_cast<std::int64_t>(prng.below(2'000'000'000))});
    }
    for (const CommId id : known) {
      pair.a->forget(pair.now, id);
      pair.b->forget(pair.now, id);
    }
    pair.run(600s);
    EXPECT_EQ(pair.a->connections(), 0u) << "seed " << seed;
    EXPECT_EQ(pair.b->connections(), 0u) << "seed " << seed;
  }
}

TEST(State, EveryPairHasAnAction) {
  int acting = 0;
  for (std::size_t state = 0; state < state_count; ++state) {
    EXPECT_FALSE(name(static_cast<State>(state)).empty());
    for (std::size_t message = 0; message < std::variant_size_v<wire::cm::Message>; ++message)
      if (action_of(static_cast<State>(state), message) != Action::ignore) ++acting;
  }
  EXPECT_EQ(acting, 20);
  EXPECT_EQ(action_of(State::req_sent, 3), Action::take_reply);
  EXPECT_EQ(action_of(State::timewait, 5), Action::repeat);
}

TEST(Timing, IsLinuxs) {
  EXPECT_EQ(ack_timeout_of(18, 15), 19);
  EXPECT_EQ(time_of_exponent(20), 4'294'967'296ns);
  EXPECT_EQ(interval_of_try(0, 20), 250ms);
  EXPECT_GT(interval_of_try(15, 20), 4s);
}

}  // namespace
}  // namespace beeline::proto::cm
