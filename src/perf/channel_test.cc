#include "perf/channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

namespace beeline::perf {
namespace {

struct Pair {
  Channel a, b;
};
Pair make_pair() {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {Channel(Descriptor{fds[0]}, "the other"), Channel(Descriptor(fds[1]), "the one")};
}

TEST(Channel, DeliversMessagesInOrder) {
  Pair pair = make_pair();
  ASSERT_TRUE(pair.a.send(encode(Ready{true})));
  ASSERT_TRUE(pair.a.send(empty_message(MessageType::bye)));
  EXPECT_TRUE(decode_ready(pair.b.receive(MessageType::ready, 5s).value())->data_in_order);
  EXPECT_EQ(pair.b.receive_any(5s)->type, MessageType::bye);
}

TEST(Channel, AnotherTypeThanDueIsAnError) {
  Pair pair = make_pair();
  ASSERT_TRUE(pair.a.send(empty_message(MessageType::bye)));
  EXPECT_EQ(pair.b.receive(MessageType::ready, 5s).error().code, Errc::protocol);
}

TEST(Channel, WaitingEnds) {
  Pair pair = make_pair();
  EXPECT_EQ(pair.b.receive(MessageType::ready, 10ms).error().code, Errc::timed_out);
}

TEST(Channel, HeartbeatsAreNoMessages) {
  Pair pair = make_pair();
  ASSERT_TRUE(pair.a.keep_alive());
  EXPECT_FALSE(pair.b.poll()->has_value());
  ASSERT_TRUE(pair.a.send(empty_message(MessageType::bye)));
  EXPECT_EQ((*pair.b.poll())->type, MessageType::bye);
}

TEST(Channel, AVanishedPeerIsNamed) {
  Pair pair = make_pair();
  { const Channel gone = std::move(pair.a); }
  const auto result = pair.b.receive(MessageType::ready, 5s);
  EXPECT_EQ(result.error().code, Errc::peer_lost);
  EXPECT_NE(result.error().message.find("the one"), std::string::npos);
  EXPECT_EQ(pair.b.poll().error().code, Errc::peer_lost);
  EXPECT_FALSE(pair.b.send(empty_message(MessageType::bye))) << "and no SIGPIPE";
}

TEST(Channel, APeersFailureIsItsSentence) {
  Pair pair = make_pair();
  pair.a.send_failure({Errc::io, "the cable is cut"});
  const auto result = pair.b.receive(MessageType::ready, 5s);
  EXPECT_EQ(result.error().message, "the one gave up: the cable is cut");
}

TEST(Channel, GarbageIsNotAllocated) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const Descriptor raw(fds[0]);
  Channel channel(Descriptor{fds[1]}, "a browser");
  const char request[] = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(write(raw.get(), request, sizeof request - 1), static_cast<ssize_t>(sizeof request - 1));
  const auto result = channel.receive(MessageType::hello, 5s);
  EXPECT_EQ(result.error().code, Errc::protocol);
}

TEST(Tcp, ClientFindsServerOnTheLoopback) {
  auto listener = Listener::open(0);
  ASSERT_TRUE(listener) << listener.error().message;
  auto client = connect_to("127.0.0.1", listener->port(), 5s);
  ASSERT_TRUE(client) << client.error().message;
  auto server = listener->accept();
  ASSERT_TRUE(server);
  ASSERT_TRUE(client->send(empty_message(MessageType::bye)));
  EXPECT_TRUE(server->receive(MessageType::bye, 5s));
}

TEST(Tcp, NobodyThereIsOneSentence) {
  std::uint16_t port = 0;
  { port = Listener::open(0)->port(); }
  const auto refused = connect_to("127.0.0.1", port, 5s);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("nobody listens on 127.0.0.1 port"), std::string::npos)
      << refused.error().message;
}

TEST(Tcp, APortInUseIsOneSentence) {
  const auto first = Listener::open(0);
  const auto second = Listener::open(first->port());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::in_use);
  EXPECT_NE(second.error().message.find("-p"), std::string::npos);
}

}  // namespace
}  // namespace beeline::perf
