#include "nic/train_cut.h"

#include <algorithm>

#include "base/ids.h"
#include "wire/headers.h"

namespace beeline::nic {
namespace {

constexpr std::size_t packet_bytes_min = wire::bth_bytes + wire::icrc_bytes;
constexpr std::size_t pkey_offset = 2, destination_offset = 5, psn_offset = 9;
constexpr std::size_t acknowledgement_bytes = wire::bth_bytes + wire::aeth_bytes + wire::icrc_bytes;
// Whoever writes payloads that look like headers gets that many looks at their ICRC.
constexpr int looks_max = 8;

// Whether a packet may begin here that goes where that at the front goes.
bool goes_along(Bytes bytes, std::size_t at) {
  const std::byte *first = bytes.data(), *other = first + at;
  return load_be24(other + destination_offset) == load_be24(first + destination_offset) &&
         load_be16(other + pkey_offset) == load_be16(first + pkey_offset);
}

// And is `packets` behind it.
bool follows(Bytes bytes, std::size_t at, std::size_t packets) {
  const std::uint32_t first = load_be24(bytes.data() + psn_offset);
  return load_be24(bytes.data() + at + psn_offset) ==
             ((first + static_cast<std::uint32_t>(packets)) & Psn::mask) &&
         goes_along(bytes, at);
}

// And is the acknowledgement that ends a train.
bool acknowledges(Bytes bytes, std::size_t at) {
  return bytes.size() - at == acknowledgement_bytes && is_acknowledgement(bytes.subspan(at)) &&
         goes_along(bytes, at);
}

bool looks_like_cut(Bytes bytes, std::size_t cut) {
  const std::size_t last = (bytes.size() - 1) / cut;  // its number, from 0
  if (last == 0 || last * cut + packet_bytes_min > bytes.size()) return false;
  if (last > 1 && !follows(bytes, cut, 1)) return false;
  return follows(bytes, last * cut, last) || acknowledges(bytes, last * cut);
}

bool is_cut(Bytes bytes, wire::IpUdp ip_udp, std::size_t cut) {
  ip_udp.udp_payload_bytes = static_cast<std::uint16_t>(cut);
  return wire::check_icrc(ip_udp, bytes.first(cut), true) == wire::IcrcVerdict::good_exact;
}

}  // namespace

bool is_acknowledgement(Bytes packet) {
  return !packet.empty() && load_u8(packet.data()) == static_cast<std::uint8_t>(wire::Opcode::rc_acknowledge);
}

std::size_t find_train_cut(Bytes bytes, const wire::IpUdp& ip_udp, std::size_t likely) {
  if (bytes.size() % 4 != 0 || bytes.size() < 2 * packet_bytes_min) return 0;
  if (likely % 4 == 0 && likely >= packet_bytes_min && looks_like_cut(bytes, likely) &&
      is_cut(bytes, ip_udp, likely))
    return likely;
  const std::size_t end = std::min(packet_bytes_max, bytes.size() - packet_bytes_min);
  int looks = 0;
  for (std::size_t cut = packet_bytes_min; cut <= end && looks < looks_max; cut += 4) {
    if (!looks_like_cut(bytes, cut)) continue;
    if (is_cut(bytes, ip_udp, cut)) return cut;
    ++looks;
  }
  return 0;
}

}  // namespace beeline::nic
