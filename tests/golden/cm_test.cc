// Connections of Linux's rdma_cm, as captured: every message comes out of our parser and emitter as it was.
// What the fields hold is tshark's say.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "captures.h"
#include "proto/cm/manager.h"
#include "wire/cm/ip_header.h"
#include "wire/cm/messages.h"
#include "wire/packet.h"

namespace beeline::test {
namespace {

namespace cm = wire::cm;
constexpr IpAddress client = IpAddress::v4(10, 77, 0, 3), server = IpAddress::v4(10, 77, 0, 2);

struct Captured {
  IpAddress source, destination;
  std::vector<std::byte> bytes;
  cm::Mad mad;
};

std::vector<Captured> messages_of(const std::string& file) {
  std::vector<Captured> messages;
  for (const RoceFrame& frame : load_golden(file).frames) {
    const auto packet = wire::parse(frame.datagram);
    if (!packet || packet->headers.bth.opcode != wire::Opcode::ud_send_only) continue;
    EXPECT_EQ(packet->headers.bth.destination, cm::management_qpn);
    EXPECT_EQ(packet->headers.deth.qkey, cm::management_qkey);
    EXPECT_EQ(packet->headers.deth.source, cm::management_qpn);
    const auto mad = cm::parse(packet->payload);
    EXPECT_TRUE(mad);
    if (mad)
      messages.push_back({frame.ip_udp.source,
                          frame.ip_udp.destination,
                          {packet->payload.begin(), packet->payload.end()},
                          *mad});
  }
  return messages;
}

std::string names_of(const std::vector<Captured>& messages) {
  std::string names;
  for (const Captured& message : messages)
    names += std::string(names.empty() ? "" : " ") + std::string(name(message.mad.message));
  return names;
}

TEST(GoldenConnections, AreTheMessagesThatTsharkSees) {
  EXPECT_EQ(names_of(messages_of("rxe-cm_write.pcap")), "DREP REQ REP RTU REQ REP RTU DREQ DREP DREQ DREP");
  EXPECT_EQ(names_of(messages_of("rxe-cm_sendlat.pcap")), "REQ REP RTU REQ REP RTU DREQ DREP DREQ");
}

TEST(GoldenConnections, ComeOutByteForByte) {
  for (const char* file : {"rxe-cm_write.pcap", "rxe-cm_sendlat.pcap"})
    for (const Captured& message : messages_of(file)) {
      const auto again = cm::emit(message.mad);
      EXPECT_TRUE(std::equal(again.begin(), again.end(), message.bytes.begin(), message.bytes.end()))
          << file << ": " << name(message.mad.message);
    }
}

TEST(GoldenConnections, FieldsAreWhereTsharkFindsThem) {
  const auto messages = messages_of("rxe-cm_write.pcap");
  ASSERT_EQ(messages.size(), 11u);
  EXPECT_EQ(messages[1].mad.transaction, 0x00000002'fe09aac1u);
  const auto& req = std::get<cm::Req>(messages[1].mad.message);
  EXPECT_EQ(req.local_id.value, 0xc1aa09feu);
  EXPECT_EQ(req.service_id, 0x01064853u);
  EXPECT_EQ(req.local_guid, 0x505400fffe770003u);
  EXPECT_EQ(req.local_qpn.value, 0x1bu);
  EXPECT_EQ(req.remote_response_timeout, 0x14);
  EXPECT_EQ(req.local_response_timeout, 0x14);
  EXPECT_EQ(req.transport, cm::Transport::rc);
  EXPECT_EQ(req.starting_psn.value, 0x09018eu);
  EXPECT_EQ(req.retry_count, 7);
  EXPECT_EQ(req.rnr_retry_count, 7);
  EXPECT_EQ(req.pkey, 0xFFFF);
  EXPECT_EQ(req.path_mtu, 3);
  EXPECT_EQ(req.max_cm_retries, 15);
  EXPECT_FALSE(req.srq);
  EXPECT_EQ(req.primary.local_lid, 0xFFFF);
  EXPECT_EQ(req.primary.local, client);
  EXPECT_EQ(req.primary.remote, server);
  EXPECT_EQ(req.primary.hop_limit, 0x40);
  EXPECT_EQ(req.primary.ack_timeout, 0x13);
  EXPECT_FALSE(req.primary.subnet_local);
  EXPECT_EQ(req.alternate, cm::Path{});
  EXPECT_EQ(cm::parse_ip_header(req.private_data), (cm::IpHeader{client, server, 0xe50f}));
  const auto& rep = std::get<cm::Rep>(messages[2].mad.message);
  EXPECT_EQ(rep.local_id.value, 0xf13e3bfdu);
  EXPECT_EQ(rep.remote_id.value, 0xc1aa09feu);
  EXPECT_EQ(rep.local_qpn.value, 0x1bu);
  EXPECT_EQ(rep.starting_psn.value, 0xffb773u);
  EXPECT_EQ(rep.target_ack_delay, 0x0f);
  EXPECT_EQ(rep.rnr_retry_count, 7);
  EXPECT_EQ(rep.local_guid, 0x505400fffe770002u);
  EXPECT_EQ(std::get<cm::Dreq>(messages[9].mad.message).remote_qpn.value, 0x1bu);
}

// The PSN in a message is the one with which its receiver starts: what the captured queue pairs did.
TEST(GoldenConnections, TheStartingPsnIsThePeers) {
  std::optional<Psn> first_of_client, first_of_server;
  for (const RoceFrame& frame : load_golden("rxe-cm_write.pcap").frames) {
    const auto packet = wire::parse(frame.datagram);
    if (!packet || packet->headers.bth.opcode != wire::Opcode::rc_send_only) continue;
    auto& first = frame.ip_udp.source == client ? first_of_client : first_of_server;
    if (!first) first = packet->headers.bth.psn;
  }
  EXPECT_EQ(first_of_client, Psn{0xffb773}) << "as the REP says";
  EXPECT_EQ(first_of_server, Psn{0x09018e}) << "as the REQ says";
}

// Our manager in the place of the client: with the same wishes its REQ is the kernel's, but for ids that are
// drawn, and for the flow label, which we leave to the UDP source port.
TEST(GoldenConnections, OurRequestIsTheKernels) {
  const auto messages = messages_of("rxe-cm_write.pcap");
  const auto& theirs = std::get<cm::Req>(messages[1].mad.message);
  proto::cm::Manager manager(0xc1, [] { return std::uint64_t{0x00000002'fe09aac1}; });
  proto::cm::ConnectRequest request;
  request.local = client;
  request.remote = server;
  request.source_port = 0xe50f;
  request.service_id = theirs.service_id;
  request.end.guid = theirs.local_guid;
  request.end.qpn = theirs.local_qpn;
  request.end.psn = theirs.starting_psn;
  request.path_mtu = theirs.path_mtu;
  ASSERT_TRUE(manager.connect({}, request, {}));
  proto::cm::OutMessage out;
  ASSERT_EQ(manager.poll_transmit({&out, 1}), 1u);
  auto ours = cm::parse(out.bytes).value();
  auto& req = std::get<cm::Req>(ours.message);
  EXPECT_EQ(req.local_id.value >> 24, 0xc1u);
  req.local_id = theirs.local_id;
  req.primary.flow_label = theirs.primary.flow_label;
  EXPECT_EQ(ours, messages[1].mad);
}

}  // namespace
}  // namespace beeline::test
