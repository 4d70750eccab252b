// What the kernel really puts on the wire, and what it does when the wire is slow.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/if_tun.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/ip.h>
#include <netpacket/packet.h>
#include <sched.h>
#include <sys/ioctl.h>

#include "port/udp/test_support.h"

namespace beeline::port::test {
namespace {

OutPacket out_packet(const IpAddress& from, const IpAddress& to, std::uint16_t source_port,
                     std::span<const iovec> pieces) {
  OutPacket packet;
  packet.source = from;
  packet.destination = to;
  packet.source_port = source_port;
  packet.pieces = pieces;
  return packet;
}

// Other traffic of this host would fill the capture's buffer, and ours be lost.
bool keep_only_source_port(const Descriptor& capture, std::uint16_t port) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 9),  // protocol
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 4),
      BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),  // length of the IP header
      BPF_STMT(BPF_LD | BPF_H | BPF_IND, 0),   // source port
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, 0xFFFF),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  const sock_fprog filter{std::size(program), program};
  return ::setsockopt(capture.get(), SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) == 0;
}

// The ICRC covers identification and flags: they must be what we assume.
TEST(OnTheWire, Ipv4IdentificationIsZeroAndDontFragmentIsSet) {
  const Descriptor capture(::socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_IP)));
  if (!capture) {
    std::puts("needs CAP_NET_RAW to capture: not run");
    return;
  }
  const IpAddress address = own_address(1);
  auto port = open_port(address);
  const std::uint16_t source_port = *port->source_port(address, 3);
  ASSERT_TRUE(keep_only_source_port(capture, source_port));
  std::array<std::byte, 1024> payload{};
  store_u8(payload.data() + 5, port->slot().value);
  const iovec pieces[] = {{payload.data(), payload.size()}};
  std::vector<OutPacket> packets(8, out_packet(address, address, source_port, pieces));
  ASSERT_EQ(port->send(packets), packets.size());

  int seen = 0;
  while (seen < 8) {
    std::array<std::byte, 2048> frame;
    pollfd ready{capture.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, static_cast<int>(patience / 1ms)), 1);
    const ssize_t length = ::recv(capture.get(), frame.data(), frame.size(), 0);
    if (length < 28 || load_be16(frame.data() + 20) != source_port ||
        std::memcmp(frame.data() + 12, address.bytes.data() + 12, 4) != 0)
      continue;
    EXPECT_EQ(load_be16(frame.data() + 4), 0) << "identification";
    EXPECT_EQ(load_be16(frame.data() + 6), 0x4000) << "flags: DF and no offset";
    EXPECT_EQ(load_u8(frame.data()), 0x45) << "no IP options";
    ++seen;
  }
}

// --- a network namespace with an Ethernet interface on which nobody answers ---

constexpr auto local = IpAddress::v4(10, 47, 91, 1);
constexpr auto silent = IpAddress::v4(10, 47, 91, 2);

bool configure(const Descriptor& control, ifreq request, unsigned long command, const char* address) {
  SocketAddress name{};
  name.v4.sin_family = AF_INET;
  ::inet_pton(AF_INET, address, &name.v4.sin_addr);
  std::memcpy(&request.ifr_addr, &name.v4, sizeof name.v4);
  return ::ioctl(control.get(), command, &request) == 0;
}

// Empty when this machine does not let us.
Descriptor make_silent_interface() {
  if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return {};
  Descriptor tap(::open("/dev/net/tun", O_RDWR | O_CLOEXEC));
  const Descriptor control(::socket(AF_INET, SOCK_DGRAM, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "quiet0");
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (!tap || ::ioctl(tap.get(), TUNSETIFF, &request) != 0) return {};
  if (!configure(control, request, SIOCSIFADDR, "10.47.91.1") ||
      !configure(control, request, SIOCSIFNETMASK, "255.255.255.0"))
    return {};
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (::ioctl(control.get(), SIOCSIFFLAGS, &request) != 0) return {};
  return tap;
}

// Makes the sending socket as small as the kernel lets it be.
void shrink_send_buffer(std::uint16_t source_port) {
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    SocketAddress name{};
    socklen_t length = sizeof name;
    const int least = 1;
    if (::getsockname(descriptor, &name.any, &length) == 0 && name.any.sa_family == AF_INET &&
        port_of(name) == source_port)
      ::setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
  }
}

constexpr int cannot = 77;

// Exit status: 0 good, `cannot`, else the number of the step that failed.
using Body = std::function<int(Port&, std::uint16_t source_port, const Descriptor& tap)>;

int in_silence(const Body& body) {
  const Descriptor tap = make_silent_interface();
  if (!tap) return cannot;
  auto port = open_port(local);
  if (!port) return 1;
  const auto source_port = port->source_port(local, 3);
  return source_port ? body(*port, *source_port, tap) : 2;
}

int fill_the_socket(Port& port, std::uint16_t source_port, const Descriptor&) {
  shrink_send_buffer(source_port);
  // Frames wait for an address resolution that never comes, and are charged to the socket.
  std::array<std::byte, 1024> payload{};
  const iovec pieces[] = {{payload.data(), payload.size()}};
  std::vector<OutPacket> packets(100, out_packet(local, silent, source_port, pieces));
  const auto other_flow = port.source_port(local, 4);
  if (!other_flow) return 3;
  packets.push_back(out_packet(local, silent, *other_flow, pieces));  // has room, but order counts
  const std::size_t sent = port.send(packets);
  if (sent == 0 || sent >= 100) return 4;
  for (std::size_t i = 0; i < packets.size(); ++i)
    if (packets[i].status != (i < sent ? SendStatus::sent : SendStatus::no_room)) return 8;
  return port.counters().send_failures == 0 && port.counters().datagrams_sent == sent ? 0 : 5;
}

int exceed_the_mtu(Port& port, std::uint16_t source_port, const Descriptor&) {
  std::array<std::byte, 1473> payload{};  // one more than 1500 - 28
  const iovec fits[] = {{payload.data(), payload.size() - 1}},
              does_not[] = {{payload.data(), payload.size()}};
  OutPacket packets[] = {out_packet(local, silent, source_port, does_not),
                         out_packet(local, silent, source_port, fits)};
  if (port.send(packets) != 1) return 6;
  return packets[0].status == SendStatus::failed && packets[1].status == SendStatus::sent ? 0 : 7;
}

// --- trains ---

constexpr std::size_t train_packets = 5, train_packet_bytes = 1040, last_bytes = 600;

// A train of five, the last one shorter; each begins with its number.
struct Train {
  std::array<std::array<std::byte, train_packet_bytes>, train_packets> payloads{};
  std::array<iovec, train_packets> pieces;
  std::vector<OutPacket> packets;

  explicit Train(std::uint16_t source_port) {
    for (std::size_t i = 0; i < train_packets; ++i) {
      store_u8(payloads[i].data(), static_cast<std::uint8_t>(i + 1));
      pieces[i] = {payloads[i].data(), i + 1 < train_packets ? train_packet_bytes : last_bytes};
      packets.push_back(out_packet(local, silent, source_port, {&pieces[i], 1}));
      packets.back().place = static_cast<std::uint8_t>(i);
    }
  }
};

// So that frames leave without asking.
bool know_the_neighbour() {
  const Descriptor control(::socket(AF_INET, SOCK_DGRAM, 0));
  arpreq request{};
  SocketAddress name;
  fill(name, silent, 0, 0);
  std::memcpy(&request.arp_pa, &name.v4, sizeof name.v4);
  request.arp_ha.sa_family = ARPHRD_ETHER;
  request.arp_ha.sa_data[0] = 2;
  request.arp_flags = ATF_COM | ATF_PERM;
  std::strcpy(request.arp_dev, "quiet0");
  return ::ioctl(control.get(), SIOCSARP, &request) == 0;
}

// What leaves the host: as a network card would get it to send.
int cut_a_train(Port& port, std::uint16_t source_port, const Descriptor& tap) {
  if (!know_the_neighbour()) return 10;
  if (port.train_max(local) != train_packets_max) return 11;
  Train train(source_port);
  if (port.send(train.packets) != train_packets) return 12;
  if (port.counters().trains_sent != 1 || port.counters().packets_in_trains != train_packets) return 13;
  for (std::size_t i = 0; i < train_packets;) {
    std::array<std::byte, 4096> frame;
    const ssize_t length = ::read(tap.get(), frame.data(), frame.size());
    if (length < 42 || load_be16(frame.data() + 12) != ETH_P_IP || load_u8(frame.data() + 23) != IPPROTO_UDP)
      continue;
    const std::byte* ip = frame.data() + 14;
    if (load_be16(ip + 4) != i) return 14;       // identification
    if (load_be16(ip + 6) != 0x4000) return 15;  // DF
    if (load_u8(ip + 28) != i + 1) return 16;    // the payload
    const std::size_t bytes = i + 1 < train_packets ? train_packet_bytes : last_bytes;
    if (load_be16(ip + 2) != 28 + bytes || load_be16(ip + 24) != 8 + bytes) return 17;
    ++i;
  }
  return 0;
}

// The pieces do not fit the link: the train is refused, and sent apart each says so for itself.
int train_beyond_the_mtu(Port& port, std::uint16_t source_port, const Descriptor&) {
  std::array<std::byte, 1473> payload{};
  const iovec too_long[] = {{payload.data(), payload.size()}};
  std::vector<OutPacket> packets(3, out_packet(local, silent, source_port, too_long));
  packets[1].place = 1;
  if (port.send(packets) != 0) return 20;
  for (const OutPacket& packet : packets)
    if (packet.status != SendStatus::train_refused) return 21;
  if (port.counters().trains_refused != 1 || port.train_max(local) == 1) return 22;
  packets[1].place = 0;
  if (port.send(packets) != 0) return 23;
  for (const OutPacket& packet : packets)
    if (packet.status != SendStatus::failed) return 24;
  return 0;
}

void run_in_silence(const Body& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(in_silence(body));
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == cannot) {
    std::puts("needs a network namespace and /dev/net/tun: not run");
    return;
  }
  EXPECT_EQ(WEXITSTATUS(status), 0) << "step";
}

TEST(OnTheWire, AFullSocketLeavesTheRestOfTheSpanUnsent) { run_in_silence(fill_the_socket); }

TEST(OnTheWire, WhatDoesNotFitTheLinkIsNotFragmented) { run_in_silence(exceed_the_mtu); }

TEST(OnTheWire, TheKernelNumbersThePiecesOfATrainFromZero) { run_in_silence(cut_a_train); }

TEST(OnTheWire, ATrainThatDoesNotFitTheLinkIsRefusedAsOne) { run_in_silence(train_beyond_the_mtu); }

}  // namespace
}  // namespace beeline::port::test
