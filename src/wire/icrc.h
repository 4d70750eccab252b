// The invariant CRC of RoCE v2 (IBTA annex A17, 17.3.3): CRC-32 over eight bytes of ones,
// the IP and UDP headers with their variable fields set to ones, BTH with byte 4
// set to ones, and everything up to the ICRC; stored least significant byte first.
#pragma once

#include <cstdint>

#include "base/address.h"
#include "base/bytes.h"

namespace beeline::wire {

// What the ICRC covers of the IP and UDP headers. Both addresses are of one family.
struct IpUdp {
  IpAddress source;
  IpAddress destination;
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 4791;
  std::uint16_t ip_id = 0;    // IPv4 identification; our senders write a packet's place in its train
  bool dont_fragment = true;  // IPv4 DF
  std::uint16_t udp_payload_bytes = 0;  // BTH … ICRC inclusive
};

// Incremental: Icrc crc(ip_udp); crc.update(headers); crc.update(payload); …; crc.value().
// The first update must begin with the 12 bytes of BTH.
class Icrc {
 public:
  explicit Icrc(const IpUdp& ip_udp);

  // BTH and extension headers together; masks BTH byte 4.
  void update_headers(Bytes headers);
  // Payload and pad, in any pieces.
  void update(Bytes bytes);
  // The four bytes that go on the wire are this value, least significant byte first.
  std::uint32_t value() const;

 private:
  std::uint32_t state_;
};

void store_icrc(std::byte* p, std::uint32_t icrc);
std::uint32_t load_icrc(const std::byte* p);

enum class IcrcVerdict : std::uint8_t {
  good_exact,   // matches with the IP identification given
  good_affine,  // matches with some other IP identification (CRC is affine in its 16 bits)
  bad,
};

// The ICRC of the same IPv4 packet under another identification.
std::uint32_t change_identification(std::uint32_t icrc, std::uint16_t from, std::uint16_t to,
                                    std::size_t udp_payload_bytes);

// Checks a received datagram (BTH … ICRC, at least 16 bytes). A plain UDP socket does not
// show the IP identification of the sender: `ip_udp.ip_id` is then a guess (what this card would have
// written; 0, as any sender of atomic datagrams, outside of trains), and any other identification that
// explains the ICRC counts as good_affine, which leaves 16 of 32 bits of strength. IPv6 has no
// identification and is always exact. With `strict`, only good_exact is good.
IcrcVerdict check_icrc(const IpUdp& ip_udp, Bytes datagram, bool strict = false);

}  // namespace beeline::wire
