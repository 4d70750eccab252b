#include "proto/unreliable/grh.h"

#include <cstring>

#include "base/bytes.h"

namespace beeline::proto {
namespace {

constexpr std::size_t ipv4_bytes = 20;
constexpr std::uint8_t protocol_udp = 17;
constexpr std::uint16_t dont_fragment = 0x4000;

// RFC 1071.
std::uint16_t checksum(const std::byte* header) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < ipv4_bytes; i += 2) sum += load_be16(header + i);
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

// RFC 791.
void write_ipv4(const Arrival& arrival, std::uint16_t udp_bytes, std::byte* p) {
  store_u8(p, 0x45);  // version 4, five words
  store_u8(p + 1, arrival.traffic_class);
  store_be16(p + 2, static_cast<std::uint16_t>(ipv4_bytes + udp_bytes));
  store_be16(p + 6, dont_fragment);
  store_u8(p + 8, arrival.hop_limit);
  store_u8(p + 9, protocol_udp);
  std::memcpy(p + 12, arrival.source.bytes.data() + 12, 4);
  std::memcpy(p + 16, arrival.destination.bytes.data() + 12, 4);
  store_be16(p + 10, checksum(p));
}

// RFC 8200.
void write_ipv6(const Arrival& arrival, std::uint16_t udp_bytes, std::byte* p) {
  store_be32(p, 0x6000'0000u | std::uint32_t{arrival.traffic_class} << 20);
  store_be16(p + 4, udp_bytes);
  store_u8(p + 6, protocol_udp);
  store_u8(p + 7, arrival.hop_limit);
  std::memcpy(p + 8, arrival.source.bytes.data(), 16);
  std::memcpy(p + 24, arrival.destination.bytes.data(), 16);
}

}  // namespace

std::array<std::byte, grh_bytes> grh_of(const Arrival& arrival, std::uint16_t udp_bytes) {
  std::array<std::byte, grh_bytes> area{};
  if (arrival.destination.is_v4()) {
    write_ipv4(arrival, udp_bytes, area.data() + grh_bytes - ipv4_bytes);
  } else {
    write_ipv6(arrival, udp_bytes, area.data());
  }
  return area;
}

}  // namespace beeline::proto
