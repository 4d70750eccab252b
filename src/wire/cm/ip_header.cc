#include "wire/cm/ip_header.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace beeline::wire::cm {
namespace {

constexpr std::size_t version_at = 0, family_at = 1, port_at = 2, source_at = 4, destination_at = 20;
constexpr std::uint8_t version = 0, ipv4 = 4, ipv6 = 6;

// An IPv4 address lies in the last four of sixteen bytes, the rest is zero.
IpAddress load_address(const std::byte* p, bool is_v4) {
  IpAddress address = is_v4 ? IpAddress::v4(0, 0, 0, 0) : IpAddress{};
  const std::size_t from = is_v4 ? 12 : 0;
  std::memcpy(address.bytes.data() + from, p + from, 16 - from);
  return address;
}

void store_address(std::byte* p, const IpAddress& address) {
  const std::size_t from = address.is_v4() ? 12 : 0;
  std::memset(p, 0, from);
  std::memcpy(p + from, address.bytes.data() + from, 16 - from);
}

}  // namespace

std::optional<IpHeader> parse_ip_header(Bytes private_data) {
  if (private_data.size() < ip_header_bytes) return std::nullopt;
  const std::byte* p = private_data.data();
  const unsigned family = load_u8(p + family_at) >> 4;
  if (load_u8(p + version_at) != version || (family != ipv4 && family != ipv6)) return std::nullopt;
  const bool is_v4 = family == ipv4;
  IpHeader header;
  header.source = load_address(p + source_at, is_v4);
  header.destination = load_address(p + destination_at, is_v4);
  header.source_port = load_be16(p + port_at);
  if (header.source.is_v4() != is_v4 || header.destination.is_v4() != is_v4) return std::nullopt;
  return header;
}

void emit(const IpHeader& header, MutableBytes out) {
  BEELINE_CHECK(out.size() >= ip_header_bytes);
  std::byte* p = out.data();
  const std::uint8_t family = header.destination.is_v4() ? ipv4 : ipv6;
  store_u8(p + version_at, version);
  store_u8(p + family_at, static_cast<std::uint8_t>(family << 4));
  store_be16(p + port_at, header.source_port);
  store_address(p + source_at, header.source);
  store_address(p + destination_at, header.destination);
}

}  // namespace beeline::wire::cm
