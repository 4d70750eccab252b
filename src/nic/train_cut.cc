#include "nic/train_cut.h"

#include <algorithm>

#include "base/ids.h"
#include "wire/headers.h"

namespace beeline::nic {
namespace {

constexpr std::size_t packet_bytes_min = wire::bth_bytes + wire::icrc_bytes;
constexpr std::size_t pkey_offset = 2, destination_offset = 5, psn_offset = 9;
// Whoever writes payloads that look like headers gets that many looks at their ICRC.
constexpr int looks_max = 8;

// Whether a packet may begin `packets` behind that at the front.
bool follows(Bytes bytes, std::size_t at, std::size_t packets) {
  const std::byte *first = bytes.data(), *other = first + at;
  return load_be24(other + destination_offset) == load_be24(first + destination_offset) &&
         load_be24(other + psn_offset) ==
             ((load_be24(first + psn_offset) + static_cast<std::uint32_t>(packets)) & Psn::mask) &&
         load_be16(other + pkey_offset) == load_be16(first + pkey_offset);
}

bool looks_like_cut(Bytes bytes, std::size_t cut) {
  if (cut + packet_bytes_min > bytes.size() || !follows(bytes, cut, 1)) return false;
  const std::size_t last = (bytes.size() - 1) / cut;  // its number, from 0
  return last * cut + packet_bytes_min <= bytes.size() && follows(bytes, last * cut, last);
}

bool is_cut(Bytes bytes, wire::IpUdp ip_udp, std::size_t cut) {
  ip_udp.udp_payload_bytes = static_cast<std::uint16_t>(cut);
  return wire::check_icrc(ip_udp, bytes.first(cut), true) == wire::IcrcVerdict::good_exact;
}

}  // namespace

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
