#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "input.h"
#include "targets.h"
#include "wire/icrc.h"
#include "wire/packet.h"
#include "wire/printer.h"

namespace beeline::fuzz {
namespace {

using wire::IcrcVerdict;

// Six bytes: family and DF, identification, source port, one byte of each address.
wire::IpUdp read_addresses(Input& input, std::size_t datagram_bytes) {
  const std::uint8_t flags = input.u8();
  wire::IpUdp ip;
  ip.ip_id = input.u16();
  ip.source_port = input.u16();
  const std::uint8_t host = input.u8();
  ip.source = IpAddress::v4(10, 0, 0, host);
  ip.destination = IpAddress::v4(10, 0, 1, host);
  if ((flags & 1) != 0) ip.source.bytes[0] = ip.destination.bytes[0] = 0xFD;
  ip.dont_fragment = (flags & 2) == 0;
  ip.udp_payload_bytes = static_cast<std::uint16_t>(datagram_bytes);
  return ip;
}

// Whatever parses comes out again, but for the reserved bits.
void check_round_trip(Bytes datagram) {
  const auto view = wire::parse(datagram);
  if (!view) {
    BEELINE_CHECK(!wire::name(view.error()).empty());
    return;
  }
  BEELINE_CHECK(!wire::to_string(*view).empty());
  std::array<std::byte, wire::max_header_bytes> again{};
  const std::size_t bytes = wire::emit(view->headers, again);
  std::vector<std::byte> front(datagram.begin(), datagram.begin() + static_cast<std::ptrdiff_t>(bytes));
  front[4] &= std::byte{0xC0};
  front[8] &= std::byte{0x80};
  if (view->info->has_deth) front[wire::bth_bytes + 4] = std::byte{0};
  BEELINE_CHECK(std::equal(front.begin(), front.end(), again.begin()));
  BEELINE_CHECK(view->payload.data() == datagram.data() + bytes);
  BEELINE_CHECK(bytes + view->payload.size() + view->headers.bth.pad_count + wire::icrc_bytes ==
                datagram.size());
}

// An ICRC that we computed is right, with another identification explained, and one bit off is bad.
void check_own_icrc(wire::IpUdp ip, Bytes received) {
  std::vector<std::byte> datagram(received.begin(), received.end());
  const std::size_t covered_bytes = datagram.size() - wire::icrc_bytes;
  std::byte* const trailer = datagram.data() + covered_bytes;
  wire::Icrc icrc(ip);
  icrc.update_headers(Bytes(datagram).first(covered_bytes));
  wire::store_icrc(trailer, icrc.value());
  BEELINE_CHECK(wire::check_icrc(ip, datagram, true) == IcrcVerdict::good_exact);
  trailer[0] ^= std::byte{1};
  BEELINE_CHECK(wire::check_icrc(ip, datagram, true) == IcrcVerdict::bad);
  trailer[0] ^= std::byte{1};
  ip.ip_id ^= 0x8001;
  BEELINE_CHECK(wire::check_icrc(ip, datagram) ==
                (ip.source.is_v4() ? IcrcVerdict::good_affine : IcrcVerdict::good_exact));
}

}  // namespace

void fuzz_wire(Bytes bytes) {
  Input input(bytes);
  const wire::IpUdp ip = read_addresses(input, bytes.size() < 6 ? 0 : bytes.size() - 6);
  const Bytes datagram = input.rest();
  check_round_trip(datagram);
  if (datagram.size() < wire::bth_bytes + wire::icrc_bytes || datagram.size() > 65507) return;
  const IcrcVerdict strict = wire::check_icrc(ip, datagram, true);
  const IcrcVerdict lenient = wire::check_icrc(ip, datagram);
  BEELINE_CHECK(strict != IcrcVerdict::good_affine);
  BEELINE_CHECK((strict == IcrcVerdict::good_exact) == (lenient == IcrcVerdict::good_exact));
  check_own_icrc(ip, datagram);
}

}  // namespace beeline::fuzz
