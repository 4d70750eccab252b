#include "support/pcap.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include "wire/headers.h"

namespace beeline::test {
namespace {

constexpr std::size_t file_header_bytes = 24;
constexpr std::size_t record_header_bytes = 16;
constexpr std::uint32_t link_type_ethernet = 1;

constexpr std::size_t ethernet_bytes = 14;
constexpr std::uint16_t ethertype_ipv4 = 0x0800;
constexpr std::uint16_t ethertype_ipv6 = 0x86DD;
constexpr std::size_t ipv4_bytes = 20;
constexpr std::size_t ipv6_bytes = 40;
constexpr std::size_t udp_bytes = 8;
constexpr std::uint8_t protocol_udp = 17;

// The byte order and the unit of time that the magic number announces.
struct Format {
  bool big_endian = false;
  std::int64_t ns_per_tick = 1;
};

std::optional<Format> format_of(std::uint32_t magic_read_big_endian) {
  switch (magic_read_big_endian) {
    case 0xA1B2C3D4:
      return Format{true, 1000};
    case 0xD4C3B2A1:
      return Format{false, 1000};
    case 0xA1B23C4D:
      return Format{true, 1};
    case 0x4D3CB2A1:
      return Format{false, 1};
    default:
      return std::nullopt;
  }
}

std::uint32_t load_u32(const Format& format, const std::byte* p) {
  const std::uint32_t value = load_be32(p);
  return format.big_endian ? value : __builtin_bswap32(value);
}

struct Record {
  std::int64_t time_ns = 0;
  std::size_t wire_bytes = 0;
  Bytes bytes;
};

enum class FrameKind : std::uint8_t { roce, malformed, other };

IpAddress address_v4(const std::byte* p) {
  return IpAddress::v4(load_u8(p), load_u8(p + 1), load_u8(p + 2), load_u8(p + 3));
}

IpAddress address_v6(const std::byte* p) {
  IpAddress address;
  std::memcpy(address.bytes.data(), p, 16);
  return address;
}

// `udp` begins at the UDP header and ends where the IP header says that the packet ends.
FrameKind read_udp(Bytes udp, RoceFrame& frame) {
  if (udp.size() < udp_bytes) return FrameKind::malformed;
  frame.ip_udp.source_port = load_be16(udp.data());
  frame.ip_udp.destination_port = load_be16(udp.data() + 2);
  if (frame.ip_udp.destination_port != wire::roce_v2_port) return FrameKind::other;
  if (load_be16(udp.data() + 4) != udp.size()) return FrameKind::malformed;
  frame.ip_udp.udp_payload_bytes = static_cast<std::uint16_t>(udp.size() - udp_bytes);
  const Bytes datagram = udp.subspan(udp_bytes);
  frame.datagram.assign(datagram.begin(), datagram.end());
  return FrameKind::roce;
}

FrameKind read_ipv4(Bytes ip, RoceFrame& frame) {
  if (ip.size() < ipv4_bytes) return FrameKind::malformed;
  const std::uint16_t flags = load_be16(ip.data() + 6);
  const bool fragment = (flags & 0x3FFF) != 0;  // more fragments, or an offset
  if (load_u8(ip.data()) != 0x45 || load_u8(ip.data() + 9) != protocol_udp || fragment)
    return FrameKind::other;
  const std::size_t total_bytes = load_be16(ip.data() + 2);
  if (total_bytes < ipv4_bytes || total_bytes > ip.size()) return FrameKind::malformed;
  frame.ip_udp.ip_id = load_be16(ip.data() + 4);
  frame.ip_udp.dont_fragment = (flags & 0x4000) != 0;
  frame.ip_udp.source = address_v4(ip.data() + 12);
  frame.ip_udp.destination = address_v4(ip.data() + 16);
  return read_udp(ip.subspan(ipv4_bytes, total_bytes - ipv4_bytes), frame);
}

FrameKind read_ipv6(Bytes ip, RoceFrame& frame) {
  if (ip.size() < ipv6_bytes) return FrameKind::malformed;
  if (load_u8(ip.data()) >> 4 != 6 || load_u8(ip.data() + 6) != protocol_udp) return FrameKind::other;
  const std::size_t payload_bytes = load_be16(ip.data() + 4);
  if (payload_bytes > ip.size() - ipv6_bytes) return FrameKind::malformed;
  frame.ip_udp.source = address_v6(ip.data() + 8);
  frame.ip_udp.destination = address_v6(ip.data() + 24);
  return read_udp(ip.subspan(ipv6_bytes, payload_bytes), frame);
}

FrameKind read_ethernet(Bytes ethernet, RoceFrame& frame) {
  if (ethernet.size() < ethernet_bytes) return FrameKind::malformed;
  const Bytes behind = ethernet.subspan(ethernet_bytes);
  switch (load_be16(ethernet.data() + 12)) {
    case ethertype_ipv4:
      return read_ipv4(behind, frame);
    case ethertype_ipv6:
      return read_ipv6(behind, frame);
    default:
      return FrameKind::other;
  }
}

void add(Capture& capture, const Record& record, std::int64_t first_ns) {
  if (record.bytes.size() < record.wire_bytes) {
    ++capture.truncated;
    return;
  }
  RoceFrame frame;
  frame.captured = {record.time_ns - first_ns};
  switch (read_ethernet(record.bytes, frame)) {
    case FrameKind::roce:
      capture.frames.push_back(std::move(frame));
      break;
    case FrameKind::malformed:
      ++capture.malformed;
      break;
    case FrameKind::other:
      ++capture.other;
      break;
  }
}

}  // namespace

Result<Capture> parse_pcap(Bytes file) {
  if (file.size() < file_header_bytes)
    return fail(Errc::invalid_argument, "{} bytes are too short for a pcap file", file.size());
  const auto format = format_of(load_be32(file.data()));
  if (!format) return fail(Errc::invalid_argument, "not a classic pcap file (convert with: editcap -F pcap)");
  // The high half of this field may carry FCS bits.
  const std::uint32_t link_type = load_u32(*format, file.data() + 20) & 0xFFFF;
  if (link_type != link_type_ethernet)
    return fail(Errc::unsupported, "link type {} of the pcap file is not Ethernet", link_type);

  Capture capture;
  std::optional<std::int64_t> first_ns;
  for (std::size_t at = file_header_bytes; at < file.size();) {
    const Bytes rest = file.subspan(at);
    if (rest.size() < record_header_bytes)
      return fail(Errc::invalid_argument, "the pcap file ends within the record header at byte {}", at);
    Record record;
    record.time_ns = std::int64_t{load_u32(*format, rest.data())} * 1'000'000'000 +
                     std::int64_t{load_u32(*format, rest.data() + 4)} * format->ns_per_tick;
    const std::size_t captured_bytes = load_u32(*format, rest.data() + 8);
    record.wire_bytes = load_u32(*format, rest.data() + 12);
    if (captured_bytes > rest.size() - record_header_bytes)
      return fail(Errc::invalid_argument, "the pcap file ends within the record at byte {}", at);
    record.bytes = rest.subspan(record_header_bytes, captured_bytes);
    if (!first_ns) first_ns = record.time_ns;
    add(capture, record, *first_ns);
    at += record_header_bytes + captured_bytes;
  }
  return capture;
}

Result<Capture> read_pcap(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail_errno(errno, "opening " + path);
  const std::vector<char> bytes(std::istreambuf_iterator<char>(in), {});
  auto capture = parse_pcap(std::as_bytes(std::span(bytes)));
  if (!capture) return fail(capture.error().code, "{}: {}", path, capture.error().message);
  return capture;
}

}  // namespace beeline::test
