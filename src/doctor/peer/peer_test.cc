// Two doctors in one process, over loopback addresses and a fabric of its own.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "doctor/peer/checks.h"
#include "doctor/peer/datagram.h"
#include "doctor/peer/echo.h"
#include "doctor/peer/listener.h"
#include "verbs/fake/fake_provider.h"

namespace beeline::doctor::peer {
namespace {

const auto here_address = IpAddress::v4(127, 0, 0, 1), there_address = IpAddress::v4(127, 0, 0, 2);

HostFacts host(const std::string& name, const IpAddress& address) {
  Rail rail;
  rail.device = name + "0";
  rail.netdev = "lo";
  rail.driven = true;
  rail.active_mtu_bytes = 1024;
  rail.link_mtu_bytes = 1500;
  rail.gids = {{0, address, "RoCE v2"}};
  return {name, {rail}};
}

std::unique_ptr<verbs::FakeProvider> two_devices() {
  verbs::FakeOptions options;
  options.devices = {{"here0", true, 1024, {here_address}, 1}, {"there0", true, 1024, {there_address}, 2}};
  return verbs::make_fake_provider(options);
}

std::pair<Channel, Channel> two_ends() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {Channel(Descriptor(ends[0]), "there"), Channel(Descriptor(ends[1]), "here")};
}

std::map<std::string, Status> statuses(const std::vector<doctor::Result>& results) {
  std::map<std::string, Status> all;
  for (const auto& result : results) all[std::string(result.check->id)] = result.status;
  return all;
}

std::vector<std::string> alarms(const std::vector<doctor::Result>& results) {
  std::vector<std::string> all;
  for (const auto& result : results)
    if (result.status == Status::failure || result.status == Status::warning)
      all.emplace_back(result.check->id);
  return all;
}

using Names = std::vector<std::string>;

// A whole examination of `there` by `here`.
std::vector<doctor::Result> examine(const HostFacts& here, const HostFacts& there,
                                    verbs::Provider* provider) {
  auto [client, server] = two_ends();
  std::thread listener([&, channel = std::move(server)]() mutable {
    const auto served =
        serve_client(channel, {[&] { return provider; }, [&](verbs::Provider*) { return there; }}, 0);
    EXPECT_TRUE(served) << served.error().message;
  });
  const auto measured = measure(client, here, provider);
  listener.join();
  EXPECT_TRUE(measured) << measured.error().message;
  return measured ? judge(**measured, "there") : std::vector<doctor::Result>{};
}

TEST(Peer, HealthyHostsRaiseNoAlarm) {
  const auto provider = two_devices();
  const auto results = examine(host("here", here_address), host("there", there_address), provider.get());
  EXPECT_EQ(alarms(results), Names{});
  auto all = statuses(results);
  EXPECT_EQ(all.size(), checks().size());
  for (const auto* id : {"peer.listener", "peer.gid_type", "peer.gid_family", "peer.mtu", "peer.reach",
                         "peer.arrival", "peer.mtu_probe", "peer.source_ports", "peer.rc_ping"})
    EXPECT_EQ(all[id], Status::ok) << id;
  for (const auto& result : results) EXPECT_EQ(result.group_name(), "peer there");
}

TEST(Peer, WithoutAProviderOnlyThePingIsMissing) {
  const auto results = examine(host("here", here_address), host("there", there_address), nullptr);
  EXPECT_EQ(alarms(results), Names{});
  EXPECT_EQ(statuses(results)["peer.rc_ping"], Status::not_applicable);
}

TEST(Peer, EachDifferenceIsItsOwnAlarm) {
  const auto here = host("here", here_address);
  auto there = host("there", there_address);
  there.rails[0].link_mtu_bytes = 9000;
  there.rails[0].active_mtu_bytes = 4096;
  EXPECT_EQ(alarms(examine(here, there, nullptr)), Names{"peer.mtu"});
  there = host("there", there_address);
  there.rails[0].dscp = 26;
  EXPECT_EQ(alarms(examine(here, there, nullptr)), Names{"peer.traffic_class"});
  there = host("there", there_address);
  there.rails[0].gids[0].type = "RoCE v1";
  EXPECT_EQ(alarms(examine(here, there, nullptr)), (Names{"peer.gid_type", "peer.gid_family"}));
  there = host("there", *parse_address("::1"));
  EXPECT_EQ(alarms(examine(here, there, nullptr)), Names{"peer.gid_family"});
  there = host("there", there_address);
  there.rails[0].netdev = "elsewhere";
  EXPECT_EQ(alarms(examine(here, there, nullptr)), Names{"peer.arrival"});
}

TEST(Peer, ThatIsThisHostIsSaidToBe) {
  Measured measured;
  measured.here = host("here", here_address);
  measured.there = host("here", here_address);
  add_pairs(measured);
  EXPECT_EQ(alarms(judge(measured, "localhost")), Names{});
  EXPECT_NE(remark(measured, "localhost").find("localhost is this host"), std::string::npos);
  measured.there.rails.clear();
  measured.same_host = false;
  EXPECT_EQ(remark(measured, "node2"), "Nothing could be tested with node2: no RDMA device there.");
  measured = {};
  measured.here = host("here", here_address);
  measured.there = host("there", there_address);
  add_pairs(measured);
  EXPECT_EQ(remark(measured, "there"), "");
}

TEST(Peer, ThatIsNotReachedGetsTheFixThatHelps) {
  const auto fix = [](const Error& error, const Way& way) {
    return unreached(error, "node2", way).at(0).fix;
  };
  const auto no_name = connect_to("host.invalid", 18791, 10s);
  ASSERT_FALSE(no_name);
  EXPECT_NE(fix(no_name.error(), {false, 18791}).find("check the name"), std::string::npos);
  EXPECT_EQ(fix(no_name.error(), {false, 18791}).find("--listen"), std::string::npos);
  const auto nobody = connect_to("127.0.0.1", 1, 10s);
  ASSERT_FALSE(nobody);
  EXPECT_NE(fix(nobody.error(), {false, 7}).find("there: beeline doctor --listen (and TCP 7 open)"),
            std::string::npos);
  const auto by_ssh = fix({Errc::peer_lost, "ended early"}, {true, 0});
  EXPECT_NE(by_ssh.find("ssh -o BatchMode=yes node2"), std::string::npos);
  EXPECT_EQ(by_ssh.find("--listen"), std::string::npos);
}

TEST(Peer, ALoopbackAddressIsNoWayToAnotherHost) {
  const auto results =
      examine(host("here", here_address), host("there", IpAddress::v4(203, 0, 113, 7)), nullptr);
  // Not loopback on one side: no pair can be made.
  EXPECT_EQ(alarms(results), Names{"peer.gid_family"});
}

TEST(Peer, APairThatPassesNothingIsExplainedWithBothGids) {
  Measured measured;
  measured.here = host("here", here_address);
  measured.there = host("there", there_address);
  add_pairs(measured);
  ASSERT_EQ(measured.pairs.size(), 1u);
  auto& pair = measured.pairs[0];
  pair.port = 18791;
  pair.echo = {true, "", "lo", "lo"};
  pair.mtu = MtuResult{1472, 1040, 1472, false};
  pair.ports = PortResult{{49155}, {}};
  pair.rc = RcResult{false, true, "retry exceeded"};
  const auto results = judge(measured, "there");
  EXPECT_EQ(alarms(results), (Names{"peer.mtu_probe", "peer.source_ports", "peer.rc_ping"}));
  for (const auto& result : results) {
    if (result.check->id == "peer.source_ports") {
      EXPECT_NE(result.evidence.find("49155"), std::string::npos);
    }
    if (result.check->id == "peer.rc_ping") {
      EXPECT_NE(result.cause.find(gid_string(here_address)), std::string::npos);
      EXPECT_NE(result.cause.find(gid_string(there_address)), std::string::npos);
    }
    if (result.check->id == "peer.mtu_probe") {
      EXPECT_EQ(result.status, Status::failure);
      EXPECT_NE(result.cause.find("black hole"), std::string::npos);
    }
  }
}

TEST(Peer, AnOfferedHostIsBoundedAndTamed) {
  auto message = to_json(host("here", here_address));
  message["name"] = std::string(5000, 'x') + "\x1b[31m";
  message["rails"][0]["device"] = "bad\x1b]0;name";
  message["rails"][0]["link_mtu"] = -5;
  message["rails"][0]["gids"].push_back({{"address", 7}});
  const auto read = host_from_json(message);
  ASSERT_TRUE(read);
  EXPECT_LT(read->name.size(), 100u);
  EXPECT_EQ(read->rails[0].device, "bad\\x1b]0;name");
  EXPECT_EQ(read->rails[0].link_mtu_bytes, 0u);
  EXPECT_EQ(read->rails[0].gids.size(), 1u);
  message["rails"] = "none";
  EXPECT_FALSE(host_from_json(message));
}

TEST(Peer, AnEchoAnswersOnlyWhoKnowsTheSecret) {
  EchoServer echo(host("there", there_address), 0, 42, {here_address});
  ASSERT_EQ(echo.doors().size(), 1u);
  const auto socket = udp_socket(here_address, 0);
  ASSERT_TRUE(socket);
  const auto to = socket_address(there_address, echo.doors()[0].port);
  const auto answered = [&](std::uint64_t secret, Duration wait) {
    std::vector<std::byte> bytes(200), room(most_datagram_bytes);
    encode(EchoRequest{secret, 1, 128}, bytes);
    EXPECT_EQ(send_through(socket->get(), bytes, &to, here_address, 0), 0);
    if (!wait_for(socket->get(), POLLIN, monotonic_now() + wait)) return std::uint32_t{0};
    const auto arrival = receive_from(socket->get(), room);
    EXPECT_TRUE(arrival && arrival->bytes == 128);
    return decode_answer(room)->received_bytes;
  };
  EXPECT_EQ(answered(41, 50ms), 0u);
  EXPECT_EQ(answered(42, 10s), 200u);
}

// What a listener does with strangers: a line each, and then it serves the next.
class Listening : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = Listener::open(0);
    ASSERT_TRUE(opened) << opened.error().message;
    listener_ = std::make_unique<Listener>(std::move(*opened));
    thread_ = std::thread([this] {
      listener_->run(
          host_,
          [this](const std::string& line) {
            const std::lock_guard lock(mutex_);
            lines_.push_back(line);
          },
          stop_);
    });
  }
  void TearDown() override {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Channel client() {
    auto channel = connect_to("127.0.0.1", listener_->port(), 10s);
    EXPECT_TRUE(channel) << channel.error().message;
    return std::move(*channel);
  }
  void send_garbage(const std::string& bytes) {
    const auto to = socket_address(here_address, listener_->port());
    const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(socket.get(), to.get(), to.length), 0);
    static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
    ::shutdown(socket.get(), SHUT_WR);
    char sink[512];
    while (::recv(socket.get(), sink, sizeof sink, 0) > 0) {
    }
  }
  std::size_t lines() {
    const std::lock_guard lock(mutex_);
    return lines_.size();
  }
  void wait_for_lines(std::size_t count) {
    const auto deadline = monotonic_now() + 30s;
    while (lines() < count && monotonic_now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_EQ(lines(), count);
  }

  std::atomic<int> opened_ = 0;
  Host host_{[this]() -> verbs::Provider* {
               ++opened_;
               return nullptr;
             },
             [](verbs::Provider*) { return host("there", there_address); }};
  std::unique_ptr<Listener> listener_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::thread thread_;
};

TEST_F(Listening, StrangersCostALineEach) {
  const std::vector<std::string> strangers = {
      "",
      "GET / HTTP/1.0\r\n\r\n",
      std::string("\xff\xff\xff\xff", 4),
      std::string("\0\0\0\5[[[[[", 9),
      std::string("\0\0\0\2{}", 6),
      std::string("\0\0\0\20{\"type\":\"hello\"}", 20),
      std::string(70'000, '\0'),
  };
  std::size_t count = 0;
  for (const auto& bytes : strangers) {
    send_garbage(bytes);
    wait_for_lines(++count);
  }
  auto channel = client();
  const auto measured = measure(channel, host("here", here_address), nullptr);
  ASSERT_TRUE(measured) << measured.error().message;
  EXPECT_EQ(alarms(judge(**measured, "there")), Names{});
}

// Links and addresses come and go while a listener waits.
TEST_F(Listening, EachClientSeesTheCardsAsTheyAreThen) {
  for (int clients = 1; clients <= 2; ++clients) {
    {
      auto channel = client();
      ASSERT_TRUE(measure(channel, host("here", here_address), nullptr));
    }
    wait_for_lines(static_cast<std::size_t>(clients));
    EXPECT_EQ(opened_, clients);
  }
}

TEST_F(Listening, ASecondClientIsSentAwayWithASentence) {
  auto first = client();
  ASSERT_TRUE(first.send({{"type", "hello"}, {"program", "beeline doctor"}, {"version", 1}}));
  ASSERT_TRUE(first.receive("host", 20s));
  auto second = client();
  const auto measured = measure(second, host("here", here_address), nullptr);
  ASSERT_FALSE(measured);
  EXPECT_NE(measured.error().message.find("busy with 127.0.0.1"), std::string::npos)
      << measured.error().message;
}

}  // namespace
}  // namespace beeline::doctor::peer
