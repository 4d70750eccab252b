#include "port/udp/raw_socket.h"

#include <fmt/format.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "port/udp/data_socket.h"
#include "port/udp/socket_address.h"
#include "port/udp/steering.h"

namespace beeline::port {
namespace {

constexpr std::size_t ip_bytes = 20, udp_bytes = 8;
constexpr std::uint32_t udp_destination_port = 2;  // offset in the UDP header
constexpr std::uint32_t first_byte = udp_bytes;    // of the payload: BTH's opcode, or the marker of a probe
constexpr std::uint32_t slot_byte = udp_bytes + 5;
constexpr std::uint32_t destination_word = udp_bytes + 4;  // its lower 24 bits are DestQP
constexpr std::uint32_t destination_end = udp_bytes + 8;
constexpr std::uint32_t management_qpn = 1;
constexpr std::uint32_t whole = 0xFFFF'FFFF;  // what a filter returns to accept all of a packet
constexpr std::uint16_t dont_fragment = 0x4000;
constexpr int ecn_mask = 3, ecn_ce = 3;  // RFC 3168, 5

int attach(int socket, std::span<sock_filter> code) {
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  return ::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0 ? 0 : errno;
}

int attach_closed_filter(int socket) {
  sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  return attach(socket, code);
}

// What came between socket() and the first filter. Bounded: nothing is added any more.
void drain(int socket) {
  std::byte byte;
  while (::recv(socket, &byte, sizeof byte, MSG_DONTWAIT) >= 0) continue;
}

// Offsets count from the IP header; a load behind the end drops the packet.
int attach_raw_filter(int socket, Slot own) {
  sock_filter code[] = {
      BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),  // X: length of the IP header
      BPF_STMT(BPF_LD | BPF_H | BPF_IND, udp_destination_port),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, roce_port, 0, 11),
      BPF_STMT(BPF_LD | BPF_B | BPF_IND, first_byte),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, probe_marker, 9, 0),
      BPF_STMT(BPF_LD | BPF_B | BPF_IND, slot_byte),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, own.value, 0, 7),
      BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      BPF_STMT(BPF_ALU | BPF_SUB | BPF_X, 0),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, destination_end, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_IND, destination_word),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xFF'FFFF),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, management_qpn, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, whole),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  return attach(socket, code);
}

}  // namespace

bool may_see_ip_headers() {
  return static_cast<bool>(Descriptor(::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP)));
}

Result<Descriptor> open_raw_socket(const IpAddress& address, Slot own) {
  Descriptor socket(::socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP));
  if (!socket) return fail_errno(errno, fmt::format("cannot make a raw socket for {}", to_string(address)));
  // Before it is bound, a raw socket gets what comes to any address of the host; packets for our slot may be
  // among it, where the slot's last owner had connections. So it gets nothing until then.
  if (const int error = attach_closed_filter(socket.get()))
    return fail_errno(error, "cannot filter a raw socket");
  grow_receive_buffer(socket);
  SocketAddress name;
  const socklen_t length = fill(name, address, 0, 0);
  if (::bind(socket.get(), &name.any, length) != 0)
    return fail_errno(errno, fmt::format("cannot bind a raw socket to {}", to_string(address)));
  drain(socket.get());
  if (const int error = attach_raw_filter(socket.get(), own))
    return fail_errno(error, "cannot filter a raw socket");
  return socket;
}

// Offsets count from the UDP header. What is too short for a slot stays: somebody counts it.
Result<void> drop_what_the_raw_socket_takes(int udp_socket, Slot own) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, slot_byte, 0, 10),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, first_byte),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, probe_marker, 8, 0),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, slot_byte),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, own.value, 0, 6),
      BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, destination_end, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, destination_word),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xFF'FFFF),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, management_qpn, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, 0),
      BPF_STMT(BPF_RET | BPF_K, whole),
  };
  if (const int error = attach(udp_socket, code)) return fail_errno(error, "cannot filter a UDP socket");
  return {};
}

std::optional<InPacket> parse_ip_datagram(MutableBytes bytes) {
  const std::byte* ip = bytes.data();
  if (bytes.size() < ip_bytes + udp_bytes || load_u8(ip) != 0x45 || load_be16(ip + 2) != bytes.size())
    return std::nullopt;
  const std::uint16_t flags = load_be16(ip + 6);
  const std::byte* udp = ip + ip_bytes;
  if ((flags & ~dont_fragment) != 0 || load_be16(udp + 4) != bytes.size() - ip_bytes) return std::nullopt;
  InPacket packet;
  packet.source = packet.destination = IpAddress::v4(0, 0, 0, 0);
  std::memcpy(packet.source.bytes.data() + 12, ip + 12, 4);
  std::memcpy(packet.destination.bytes.data() + 12, ip + 16, 4);
  packet.source_port = load_be16(udp);
  packet.bytes = bytes.subspan(ip_bytes + udp_bytes);
  packet.congestion_experienced = (load_u8(ip + 1) & ecn_mask) == ecn_ce;
  packet.marks = {load_u8(ip + 1), load_u8(ip + 8)};
  packet.ip_header_seen = true;
  packet.may_be_train = true;
  packet.dont_fragment = (flags & dont_fragment) != 0;
  packet.ip_id = load_be16(ip + 4);
  return packet;
}

}  // namespace beeline::port
