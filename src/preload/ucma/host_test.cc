// The commands of /dev/infiniband/rdma_cm, driven as librdmacm would, over a card on the loopback.
#include "preload/ucma/host.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/random.h"
#include "port/udp/udp_port.h"
#include "preload/ucma/event_type.h"

namespace beeline::preload::ucma {
namespace {

const IpAddress loopback = IpAddress::v4(127, 0, 0, 1);

// Commands of one file, in their binary form.
class Channel {
 public:
  explicit Channel(Host& host) : host_(host), file_(O_NONBLOCK | O_CLOEXEC) {}
  ~Channel() {
    host_.release(file_);
    ::close(file_.first_descriptor());
  }

  template <class Body>
  int run(std::uint32_t command, const Body& body, std::size_t out_bytes = 0,
          std::size_t in_bytes = sizeof(Body)) {
    std::vector<std::byte> bytes(sizeof(rdma_ucm_cmd_hdr) + in_bytes);
    const rdma_ucm_cmd_hdr header{command, static_cast<std::uint16_t>(in_bytes),
                                  static_cast<std::uint16_t>(out_bytes)};
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, &body, in_bytes);
    return host_.execute(file_, bytes);
  }
  std::uint32_t create(std::uint16_t space = RDMA_PS_TCP, std::uint64_t uid = 77,
                       std::uint8_t qp_type = IBV_QPT_RC) {
    rdma_ucm_create_id_resp response{};
    rdma_ucm_create_id body{};
    body.uid = uid;
    body.ps = space;
    body.qp_type = qp_type;
    body.response = reinterpret_cast<std::uintptr_t>(&response);
    EXPECT_EQ(run(RDMA_USER_CM_CMD_CREATE_ID, body, sizeof response), 0);
    return response.id;
  }
  int bind(std::uint32_t id, std::uint16_t port, const IpAddress& address = loopback) {
    rdma_ucm_bind_ip body{};
    body.id = id;
    store({AF_INET, address, port, 0}, body.addr);
    return run(RDMA_USER_CM_CMD_BIND_IP, body);
  }
  int listen(std::uint32_t id, std::uint32_t backlog = 4) {
    return run(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, backlog});
  }
  int resolve(std::uint32_t id, std::uint16_t port, const IpAddress& to = loopback) {
    rdma_ucm_resolve_ip body{};
    body.id = id;
    store({AF_INET, to, port, 0}, body.dst_addr);
    return run(RDMA_USER_CM_CMD_RESOLVE_IP, body);
  }
  std::optional<rdma_ucm_event_resp> event() {
    rdma_ucm_event_resp response{};
    const rdma_ucm_get_event body{reinterpret_cast<std::uintptr_t>(&response)};
    const int error = run(RDMA_USER_CM_CMD_GET_EVENT, body, sizeof response);
    EXPECT_TRUE(error == 0 || error == -EAGAIN) << error;
    return error == 0 ? std::optional(response) : std::nullopt;
  }
  // Waits for it.
  rdma_ucm_event_resp expect(EventType type) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    auto got = event();
    while (!got && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
      got = event();
    }
    EXPECT_TRUE(got);
    EXPECT_EQ(got ? got->event : 99, static_cast<std::uint32_t>(type));
    return got.value_or(rdma_ucm_event_resp{});
  }
  rdma_ucm_query_route_resp query(std::uint32_t id) {
    rdma_ucm_query_route_resp response{};
    rdma_ucm_query body{};
    body.id = id;
    body.response = reinterpret_cast<std::uintptr_t>(&response);
    EXPECT_EQ(run(RDMA_USER_CM_CMD_QUERY_ROUTE, body, sizeof response), 0);
    return response;
  }
  std::optional<ib_uverbs_qp_attr> attributes(std::uint32_t id, std::uint32_t state) {
    ib_uverbs_qp_attr response{};
    rdma_ucm_init_qp_attr body{};
    body.id = id;
    body.qp_state = state;
    body.response = reinterpret_cast<std::uintptr_t>(&response);
    return run(RDMA_USER_CM_CMD_INIT_QP_ATTR, body, sizeof response) == 0 ? std::optional(response)
                                                                          : std::nullopt;
  }
  // How many events were taken on it, or a negative errno.
  int destroy(std::uint32_t id) {
    rdma_ucm_destroy_id_resp response{};
    rdma_ucm_destroy_id body{};
    body.id = id;
    body.response = reinterpret_cast<std::uintptr_t>(&response);
    const int error = run(RDMA_USER_CM_CMD_DESTROY_ID, body, sizeof response);
    return error == 0 ? static_cast<int>(response.events_reported) : error;
  }
  File& file() { return file_; }

 private:
  Host& host_;
  File file_;
};

class HostTest : public testing::Test {
 protected:
  HostTest() {
    card_ = make_card();
    host_ = std::make_unique<Host>(*card_);
  }
  static std::unique_ptr<nic::Card> make_card(std::uint32_t longest_packet = UINT32_MAX) {
    auto interfaces = port::list_interfaces();
    EXPECT_TRUE(interfaces);
    for (port::Interface& each : *interfaces) each.mtu = std::min(each.mtu, longest_packet);
    return std::move(*nic::Card::create({}, *port::make_udp_port(IcrcCheck::plain), *interfaces));
  }
  // A port that most likely nobody has.
  std::uint16_t some_port() { return static_cast<std::uint16_t>(20000 + secure_random() % 10000); }
  std::uint16_t listening(Channel& channel, std::uint32_t& id, std::uint16_t space = RDMA_PS_TCP) {
    std::uint16_t port = 0;
    int error = -EADDRINUSE;
    id = channel.create(space, 100);
    for (int i = 0; i < 100 && error == -EADDRINUSE; ++i) error = channel.bind(id, port = some_port());
    EXPECT_EQ(error, 0);
    EXPECT_EQ(channel.listen(id), 0);
    return port;
  }

  std::unique_ptr<nic::Card> card_;
  std::unique_ptr<Host> host_;
};

rdma_ucm_conn_param parameters(std::uint32_t qpn, const char* data) {
  rdma_ucm_conn_param param{};
  param.qp_num = qpn;
  param.responder_resources = 3;
  param.initiator_depth = 5;
  param.retry_count = 6;
  param.rnr_retry_count = 7;
  param.valid = 1;
  param.private_data_len = static_cast<std::uint8_t>(std::strlen(data));
  std::memcpy(param.private_data, data, param.private_data_len);
  return param;
}

TEST_F(HostTest, ALoopbackAddressOnlyBoundToStandsForAnyDevice) {
  Channel channel(*host_);
  std::uint32_t id = 0;
  const std::uint16_t port = listening(channel, id);
  const auto bound = channel.query(id);
  EXPECT_EQ(bound.node_guid, 0u);
  EXPECT_EQ(bound.port_num, 0);
  EXPECT_EQ(bound.num_paths, 0u);
  sockaddr_in source{};
  std::memcpy(&source, &bound.src_addr, sizeof source);
  EXPECT_EQ(source.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  EXPECT_EQ(source.sin_port, htons(port));
}

TEST_F(HostTest, AConnectionFromBeginningToEnd) {
  Channel server(*host_), client(*host_);
  std::uint32_t listener = 0;
  const std::uint16_t port = listening(server, listener);
  const std::uint32_t id = client.create(RDMA_PS_TCP, 200);
  ASSERT_EQ(client.resolve(id, port), 0);
  EXPECT_EQ(client.expect(EventType::address_resolved).uid, 200u);
  ASSERT_EQ(client.run(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 1000}), 0);
  client.expect(EventType::route_resolved);
  const auto route = client.query(id);
  EXPECT_EQ(route.num_paths, 1u);
  EXPECT_EQ(route.port_num, 1);
  EXPECT_NE(route.node_guid, 0u);
  rdma_ucm_connect connect{};
  connect.id = id;
  connect.conn_param = parameters(0x42, "hello");
  ASSERT_EQ(client.run(RDMA_USER_CM_CMD_CONNECT, connect), 0);

  const auto request = server.expect(EventType::connect_request);
  EXPECT_EQ(request.uid, 100u) << "the listener's";
  EXPECT_NE(server.query(request.id).node_guid, 0u);
  EXPECT_EQ(request.param.conn.qp_num, 0x42u);
  EXPECT_EQ(request.param.conn.responder_resources, 5);
  EXPECT_EQ(request.param.conn.initiator_depth, 3);
  EXPECT_EQ(request.param.conn.retry_count, 6);
  EXPECT_EQ(request.param.conn.private_data_len, 56);
  EXPECT_STREQ(reinterpret_cast<const char*>(request.param.conn.private_data), "hello");
  const auto passive_init = server.attributes(request.id, IBV_QPS_INIT);
  ASSERT_TRUE(passive_init);
  EXPECT_EQ(
      passive_init->qp_access_flags,
      static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
  const auto passive_rtr = server.attributes(request.id, IBV_QPS_RTR);
  ASSERT_TRUE(passive_rtr);
  EXPECT_EQ(passive_rtr->dest_qp_num, 0x42u);
  EXPECT_EQ(std::memcmp(passive_rtr->ah_attr.grh.dgid, loopback.bytes.data(), 16), 0);
  rdma_ucm_accept accept{};
  accept.uid = 300;
  accept.id = request.id;
  accept.conn_param = parameters(0x43, "welcome");
  accept.conn_param.responder_resources = accept.conn_param.initiator_depth = 128;  // as perftest on rxe
  ASSERT_EQ(server.run(RDMA_USER_CM_CMD_ACCEPT, accept), 0);

  const auto response = client.expect(EventType::connect_response);
  EXPECT_EQ(response.param.conn.qp_num, 0x43u);
  EXPECT_STREQ(reinterpret_cast<const char*>(response.param.conn.private_data), "welcome");
  const auto rtr = client.attributes(id, IBV_QPS_RTR), rts = client.attributes(id, IBV_QPS_RTS);
  const auto passive_rts = server.attributes(request.id, IBV_QPS_RTS);
  ASSERT_TRUE(rtr && rts && passive_rts);
  EXPECT_EQ(rtr->dest_qp_num, 0x43u);
  EXPECT_EQ(rtr->rq_psn, passive_rts->sq_psn);
  EXPECT_EQ(rts->sq_psn, passive_rtr->rq_psn);
  EXPECT_EQ(rtr->path_mtu, passive_rtr->path_mtu);
  EXPECT_EQ(rts->retry_cnt, 6);
  EXPECT_EQ(rtr->max_dest_rd_atomic, 3) << "no more than the request said";
  EXPECT_EQ(rts->max_rd_atomic, 5) << "no more than the request said";
  rdma_ucm_accept ready{};
  ready.id = id;
  ASSERT_EQ(client.run(RDMA_USER_CM_CMD_ACCEPT, ready), 0);
  EXPECT_EQ(server.expect(EventType::established).uid, 300u);

  ASSERT_EQ(client.run(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id}), 0);
  server.expect(EventType::disconnected);
  ASSERT_EQ(server.run(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{request.id}), 0);
  client.expect(EventType::disconnected);
  client.expect(EventType::timewait_exit);
  EXPECT_EQ(client.destroy(id), 5);
  EXPECT_EQ(server.destroy(listener), 1) << "requests count on the listener";
}

TEST_F(HostTest, RefusalsArrive) {
  Channel server(*host_), client(*host_);
  std::uint32_t listener = 0;
  const std::uint16_t port = listening(server, listener);
  const std::uint32_t id = client.create();
  ASSERT_EQ(client.resolve(id, port), 0);
  client.expect(EventType::address_resolved);
  ASSERT_EQ(client.run(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 1000}), 0);
  client.expect(EventType::route_resolved);
  rdma_ucm_connect connect{};
  connect.id = id;
  connect.conn_param = parameters(0x42, "");
  ASSERT_EQ(client.run(RDMA_USER_CM_CMD_CONNECT, connect), 0);
  const auto request = server.expect(EventType::connect_request);
  rdma_ucm_reject reject{};
  reject.id = request.id;
  ASSERT_EQ(server.run(RDMA_USER_CM_CMD_REJECT, reject), 0);
  EXPECT_EQ(client.expect(EventType::rejected).status, 28u);
}

// As in the kernel, the backlog is of requests that the program has not fetched; it may think about many.
TEST_F(HostTest, WhoThinksAboutARequestCanBeAskedByOthers) {
  Channel server(*host_), client(*host_);
  std::uint32_t listener = 0;
  const std::uint16_t port = listening(server, listener);
  constexpr std::uint32_t more_than_the_backlog = 6;
  for (std::uint32_t i = 0; i < more_than_the_backlog; ++i) {
    const std::uint32_t id = client.create();
    ASSERT_EQ(client.resolve(id, port), 0);
    client.expect(EventType::address_resolved);
    ASSERT_EQ(client.run(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 1000}), 0);
    client.expect(EventType::route_resolved);
    rdma_ucm_connect connect{};
    connect.id = id;
    connect.conn_param = parameters(0x42 + i, "");
    ASSERT_EQ(client.run(RDMA_USER_CM_CMD_CONNECT, connect), 0);
    server.expect(EventType::connect_request);
  }
}

// What the peer would send could not arrive.
TEST_F(HostTest, APathWithLongerPacketsThanOursIsRefused) {
  const auto other_card = make_card(1500);
  Host other(*other_card);
  Channel server(other), client(*host_);
  std::uint32_t listener = 0;
  const std::uint16_t port = listening(server, listener);
  const std::uint32_t id = client.create();
  ASSERT_EQ(client.resolve(id, port), 0);
  client.expect(EventType::address_resolved);
  ASSERT_EQ(client.run(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 1000}), 0);
  client.expect(EventType::route_resolved);
  rdma_ucm_connect connect{};
  connect.id = id;
  connect.conn_param = parameters(0x42, "");
  ASSERT_EQ(client.run(RDMA_USER_CM_CMD_CONNECT, connect), 0);
  EXPECT_EQ(client.expect(EventType::rejected).status, 26u);
  EXPECT_FALSE(server.event());
}

// A server may end with its connections open, and its peer waits for a word: perftest's ib_atomic_lat -R is
// so.
TEST_F(HostTest, AProcessThatEndsDisconnects) {
  const auto other_card = make_card();
  Host other(*other_card);
  Channel server(*host_), client(other);
  std::uint32_t listener = 0;
  const std::uint16_t port = listening(server, listener);
  const std::uint32_t id = client.create();
  ASSERT_EQ(client.resolve(id, port), 0);
  client.expect(EventType::address_resolved);
  ASSERT_EQ(client.run(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 1000}), 0);
  client.expect(EventType::route_resolved);
  rdma_ucm_connect connect{};
  connect.id = id;
  connect.conn_param = parameters(0x42, "");
  ASSERT_EQ(client.run(RDMA_USER_CM_CMD_CONNECT, connect), 0);
  rdma_ucm_accept accept{};
  accept.uid = 300;
  accept.id = server.expect(EventType::connect_request).id;
  accept.conn_param = parameters(0x43, "");
  ASSERT_EQ(server.run(RDMA_USER_CM_CMD_ACCEPT, accept), 0);
  client.expect(EventType::connect_response);
  rdma_ucm_accept ready{};
  ready.id = id;
  ASSERT_EQ(client.run(RDMA_USER_CM_CMD_ACCEPT, ready), 0);
  server.expect(EventType::established);

  host_->part();
  client.expect(EventType::disconnected);
  for (const std::uint32_t each : {listener, accept.id}) EXPECT_LT(server.destroy(each), 0) << "it is gone";
}

TEST_F(HostTest, DatagramServicesAreResolved) {
  Channel server(*host_), client(*host_);
  std::uint32_t listener = 0;
  const std::uint16_t port = listening(server, listener, RDMA_PS_UDP);
  const std::uint32_t id = client.create(RDMA_PS_UDP);
  ASSERT_EQ(client.resolve(id, port), 0);
  client.expect(EventType::address_resolved);
  ASSERT_EQ(client.run(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 1000}), 0);
  client.expect(EventType::route_resolved);
  EXPECT_EQ(client.attributes(id, IBV_QPS_INIT)->qkey, 0x01234567u);
  rdma_ucm_connect connect{};
  connect.id = id;
  connect.conn_param = parameters(0x42, "who");
  ASSERT_EQ(client.run(RDMA_USER_CM_CMD_CONNECT, connect), 0);
  const auto request = server.expect(EventType::connect_request);
  EXPECT_EQ(request.param.ud.private_data_len, 180);
  rdma_ucm_accept accept{};
  accept.id = request.id;
  accept.uid = 300;
  accept.conn_param = parameters(0x43, "me");
  ASSERT_EQ(server.run(RDMA_USER_CM_CMD_ACCEPT, accept), 0);
  const auto established = client.expect(EventType::established);
  EXPECT_EQ(established.param.ud.qp_num, 0x43u);
  EXPECT_EQ(established.param.ud.qkey, 0x01234567u);
  EXPECT_EQ(established.param.ud.ah_attr.is_global, 1);
}

TEST_F(HostTest, UnreliableConnectionsAreMadeInTheirPortSpace) {
  Channel server(*host_), client(*host_);
  const std::uint32_t listener = server.create(RDMA_PS_IB, 100, IBV_QPT_UC);
  std::uint16_t port = some_port();
  while (server.bind(listener, port) == -EADDRINUSE) port = some_port();
  ASSERT_EQ(server.listen(listener), 0);
  const std::uint32_t id = client.create(RDMA_PS_IB, 200, IBV_QPT_UC);
  ASSERT_EQ(client.resolve(id, port), 0);
  client.expect(EventType::address_resolved);
  ASSERT_EQ(client.run(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 1000}), 0);
  client.expect(EventType::route_resolved);
  rdma_ucm_connect connect{};
  connect.id = id;
  connect.conn_param = parameters(0x42, "");
  ASSERT_EQ(client.run(RDMA_USER_CM_CMD_CONNECT, connect), 0);
  rdma_ucm_accept accept{};
  accept.uid = 300;
  accept.id = server.expect(EventType::connect_request).id;
  accept.conn_param = parameters(0x43, "");
  ASSERT_EQ(server.run(RDMA_USER_CM_CMD_ACCEPT, accept), 0);
  client.expect(EventType::connect_response);
  for (const auto& attributes :
       {client.attributes(id, IBV_QPS_RTR), server.attributes(accept.id, IBV_QPS_RTR)}) {
    ASSERT_TRUE(attributes);
    EXPECT_EQ(attributes->qp_attr_mask & (IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0u)
        << "of reliable connections";
  }
  rdma_ucm_create_id body{};
  body.ps = RDMA_PS_IB;
  body.qp_type = IBV_QPT_RAW_PACKET;
  EXPECT_EQ(client.run(RDMA_USER_CM_CMD_CREATE_ID, body, sizeof(rdma_ucm_create_id_resp)), -EINVAL);
}

TEST_F(HostTest, PortsAreExclusive) {
  Channel channel(*host_);
  std::uint32_t listener = 0;
  const std::uint16_t port = listening(channel, listener);
  EXPECT_EQ(channel.bind(channel.create(), port), -EADDRINUSE);
  EXPECT_EQ(channel.bind(channel.create(RDMA_PS_UDP), port), 0) << "another port space";
  EXPECT_EQ(channel.bind(channel.create(), 0), 0);
  EXPECT_EQ(channel.bind(channel.create(), 0, IpAddress::v4(203, 0, 113, 9)), -EADDRNOTAVAIL);
  EXPECT_EQ(channel.destroy(listener), 0);
  EXPECT_EQ(channel.bind(channel.create(), port), 0) << "free again";
}

TEST_F(HostTest, IdentifiersBelongToTheirFile) {
  Channel one(*host_), other(*host_);
  const std::uint32_t id = one.create();
  EXPECT_EQ(other.listen(id), -EINVAL);
  EXPECT_EQ(other.listen(id + 1000), -ENOENT);
  EXPECT_EQ(other.destroy(id), -EINVAL);
  EXPECT_EQ(one.destroy(id), 0);
  EXPECT_EQ(one.destroy(id), -ENOENT);
}

TEST_F(HostTest, OtherFamiliesAreNotOffered) {
  Channel channel(*host_);
  rdma_ucm_bind body{};
  body.id = channel.create(RDMA_PS_IB);
  body.addr_size = 48;
  const sa_family_t af_ib = 27;
  std::memcpy(&body.addr, &af_ib, sizeof af_ib);
  EXPECT_EQ(channel.run(RDMA_USER_CM_CMD_BIND, body), -EAFNOSUPPORT);
}

TEST_F(HostTest, BadPointersAreTheProgramsError) {
  Channel channel(*host_);
  rdma_ucm_create_id body{};
  body.ps = RDMA_PS_TCP;
  body.response = 16;
  EXPECT_EQ(channel.run(RDMA_USER_CM_CMD_CREATE_ID, body, sizeof(rdma_ucm_create_id_resp)), -EFAULT);
  EXPECT_EQ(channel.run(RDMA_USER_CM_CMD_CREATE_ID, body, 0), -ENOSPC);
}

// Any bytes at all: an error or not, but never a crash.
TEST_F(HostTest, GarbageIsRefused) {
  Channel channel(*host_);
  Prng prng(1);
  std::array<std::byte, 4096> scratch{};
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::array<std::byte, 640> bytes;
    for (std::byte& b : bytes) b = static_cast<std::byte>(prng.chance(0.5) ? prng.below(4) : prng.next());
    const auto size = static_cast<std::size_t>(prng.below(bytes.size()));
    rdma_ucm_cmd_hdr header{};
    header.cmd = static_cast<std::uint32_t>(prng.below(24));
    header.in = static_cast<std::uint16_t>(prng.below(size + 16));
    header.out = static_cast<std::uint16_t>(prng.below(400));
    std::memcpy(bytes.data(), &header, sizeof header);
    const std::uint64_t pointer = prng.chance(0.5) ? 0 : reinterpret_cast<std::uintptr_t>(scratch.data());
    std::memcpy(bytes.data() + sizeof header + (prng.chance(0.5) ? 0 : 8), &pointer, sizeof pointer);
    if (host_->execute(channel.file(), Bytes(bytes).first(size)) != 0) ++refused;
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace beeline::preload::ucma
