#include "wire/icrc.h"

#include <isa-l/crc.h>

#include <array>
#include <cstring>

#include "base/check.h"
#include "wire/headers.h"

namespace beeline::wire {
namespace {

constexpr std::size_t prefix_bytes = 8;  // of ones
constexpr std::size_t ipv4_bytes = 20;
constexpr std::size_t ipv6_bytes = 40;
constexpr std::size_t udp_bytes = 8;
constexpr std::size_t max_pseudo_bytes = prefix_bytes + ipv6_bytes + udp_bytes;
constexpr std::size_t ip_id_offset = 4;  // in the IPv4 header
constexpr std::size_t ip_id_bytes = 2;
constexpr std::size_t masked_bth_byte = 4;
constexpr std::uint8_t protocol_udp = 17;

// ISA-L's function is zlib's crc32: both inversions are inside, so calls chain.
std::uint32_t crc32(std::uint32_t crc, const std::byte* p, std::size_t bytes) {
  return ::crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(p), bytes);
}

// Type of service, time to live and checksum stay ones.
std::size_t write_ipv4(const IpUdp& ip_udp, std::byte* p) {
  store_u8(p, 0x45);
  store_be16(p + 2, static_cast<std::uint16_t>(ipv4_bytes + udp_bytes + ip_udp.udp_payload_bytes));
  store_be16(p + ip_id_offset, ip_udp.ip_id);
  store_be16(p + 6, ip_udp.dont_fragment ? 0x4000 : 0);
  store_u8(p + 9, protocol_udp);
  std::memcpy(p + 12, ip_udp.source.bytes.data() + 12, 4);
  std::memcpy(p + 16, ip_udp.destination.bytes.data() + 12, 4);
  return ipv4_bytes;
}

// Traffic class, flow label and hop limit stay ones.
std::size_t write_ipv6(const IpUdp& ip_udp, std::byte* p) {
  store_u8(p, 0x6F);
  store_be16(p + 4, static_cast<std::uint16_t>(udp_bytes + ip_udp.udp_payload_bytes));
  store_u8(p + 6, protocol_udp);
  std::memcpy(p + 8, ip_udp.source.bytes.data(), 16);
  std::memcpy(p + 24, ip_udp.destination.bytes.data(), 16);
  return ipv6_bytes;
}

// The prefix of ones, then the IP and UDP headers as the ICRC sees them. Returns how many bytes.
std::size_t write_pseudo_headers(const IpUdp& ip_udp, std::byte* out) {
  std::memset(out, 0xFF, max_pseudo_bytes);
  std::byte* p = out + prefix_bytes;
  p += ip_udp.source.is_v4() ? write_ipv4(ip_udp, p) : write_ipv6(ip_udp, p);
  store_be16(p, ip_udp.source_port);
  store_be16(p + 2, ip_udp.destination_port);
  store_be16(p + 4, static_cast<std::uint16_t>(udp_bytes + ip_udp.udp_payload_bytes));
  return static_cast<std::size_t>(p - out) + udp_bytes;
}

// --- Which IP identification explains a wrong ICRC?
//
// A CRC register is an element of GF(2)[x] modulo the polynomial, reflected: bit 31 is
// the coefficient of x^0. Feeding a zero byte multiplies by x^8. Changing the identification
// by e (its two bytes as they stand in the header) changes the final CRC by e * x^(8n),
// where e occupies the low 16 bits of a register and n counts the bytes from the
// identification to the end. So multiply the difference of both CRCs by x^(-8n): an
// identification explains it exactly when the result fits into the low 16 bits.

constexpr std::uint32_t polynomial = 0xEDB88320;  // without x^32, reflected
constexpr std::uint32_t one = 0x80000000;

constexpr std::uint32_t times_x(std::uint32_t a) { return (a >> 1) ^ ((a & 1) != 0 ? polynomial : 0); }

// x divides (polynomial + 1): the top bit tells whether the reduction happened.
constexpr std::uint32_t divided_by_x(std::uint32_t a) {
  return (a & one) != 0 ? ((a ^ polynomial) << 1) | 1 : a << 1;
}

constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (int i = 0; i < 32; ++i, b = times_x(b), a <<= 1) product ^= b & (0 - (a >> 31));
  return product;
}

// powers(f)[i] = f^i
constexpr std::array<std::uint32_t, 257> powers(std::uint32_t factor) {
  std::array<std::uint32_t, 257> result{};
  result[0] = one;
  for (std::size_t i = 1; i < result.size(); ++i) result[i] = multiply(result[i - 1], factor);
  return result;
}

constexpr std::uint32_t power(std::uint32_t factor, std::size_t exponent) {
  std::uint32_t result = one;
  for (; exponent != 0; exponent >>= 1, factor = multiply(factor, factor))
    if ((exponent & 1) != 0) result = multiply(result, factor);
  return result;
}

constexpr std::uint32_t feed_byte = one >> 8;  // x^8
constexpr std::uint32_t unfeed_byte = [] {
  std::uint32_t a = one;
  for (int i = 0; i < 8; ++i) a = divided_by_x(a);
  return a;
}();
// x^(-8n) for n of two bytes: unfeed_low[n & 255] * unfeed_high[n >> 8].
constexpr auto unfeed_low = powers(unfeed_byte);
constexpr auto unfeed_high = powers(unfeed_low[256]);

constexpr std::size_t bytes_from_identification(std::size_t udp_payload_bytes) {
  return ipv4_bytes - ip_id_offset + udp_bytes + udp_payload_bytes - icrc_bytes;
}

bool explained_by_identification(std::uint32_t difference, std::size_t udp_payload_bytes) {
  const std::size_t n = bytes_from_identification(udp_payload_bytes);
  const std::uint32_t at_identification =
      multiply(multiply(difference, unfeed_low[n & 255]), unfeed_high[n >> 8]);
  static_assert(ip_id_bytes == 2);
  return at_identification >> 16 == 0;
}

std::uint32_t compute(const IpUdp& ip_udp, Bytes covered) {
  std::array<std::byte, max_pseudo_bytes + bth_bytes> start;
  std::size_t used = write_pseudo_headers(ip_udp, start.data());
  std::memcpy(start.data() + used, covered.data(), bth_bytes);
  start[used + masked_bth_byte] = std::byte{0xFF};
  const std::uint32_t crc = crc32(0, start.data(), used + bth_bytes);
  return crc32(crc, covered.data() + bth_bytes, covered.size() - bth_bytes);
}

}  // namespace

Icrc::Icrc(const IpUdp& ip_udp) : state_(0) {
  std::array<std::byte, max_pseudo_bytes> pseudo;
  state_ = crc32(0, pseudo.data(), write_pseudo_headers(ip_udp, pseudo.data()));
}

void Icrc::update_headers(Bytes headers) {
  BEELINE_CHECK(headers.size() >= bth_bytes);
  std::array<std::byte, bth_bytes> bth;
  std::memcpy(bth.data(), headers.data(), bth_bytes);
  bth[masked_bth_byte] = std::byte{0xFF};
  state_ = crc32(state_, bth.data(), bth.size());
  update(headers.subspan(bth_bytes));
}

void Icrc::update(Bytes bytes) {
  if (!bytes.empty()) state_ = crc32(state_, bytes.data(), bytes.size());
}

std::uint32_t Icrc::value() const { return state_; }

void store_icrc(std::byte* p, std::uint32_t icrc) {
  for (unsigned i = 0; i < icrc_bytes; ++i) store_u8(p + i, static_cast<std::uint8_t>(icrc >> 8 * i));
}

std::uint32_t load_icrc(const std::byte* p) {
  std::uint32_t icrc = 0;
  for (unsigned i = 0; i < icrc_bytes; ++i) icrc |= std::uint32_t{load_u8(p + i)} << 8 * i;
  return icrc;
}

std::uint32_t change_identification(std::uint32_t icrc, std::uint16_t from, std::uint16_t to,
                                    std::size_t udp_payload_bytes) {
  const std::uint32_t change = from ^ to;  // its first byte on the wire is the low one of a register
  const std::uint32_t in_register = change >> 8 | (change & 0xFF) << 8;
  return icrc ^ multiply(in_register, power(feed_byte, bytes_from_identification(udp_payload_bytes)));
}

IcrcVerdict check_icrc(const IpUdp& ip_udp, Bytes datagram, bool strict) {
  BEELINE_CHECK(datagram.size() >= bth_bytes + icrc_bytes);
  const Bytes covered = datagram.first(datagram.size() - icrc_bytes);
  const std::uint32_t difference = compute(ip_udp, covered) ^ load_icrc(datagram.data() + covered.size());
  if (difference == 0) return IcrcVerdict::good_exact;
  const bool guess = !strict && ip_udp.source.is_v4();
  return guess && explained_by_identification(difference, datagram.size()) ? IcrcVerdict::good_affine
                                                                           : IcrcVerdict::bad;
}

}  // namespace beeline::wire
