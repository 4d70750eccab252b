#include "wire/icrc.h"

#include <gtest/gtest.h>

#include <array>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/random.h"
#include "wire/headers.h"

namespace beeline::wire {
namespace {

using Buffer = std::vector<std::byte>;

// --- An independent, slow reference: real headers in memory, masked by a list, one bit at a time.

std::uint32_t bitwise_crc32(Bytes bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const std::byte b : bytes) {
    crc ^= load_u8(&b);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

struct Range {
  std::size_t offset, bytes;
  std::uint8_t bits = 0xFF;
};

// A packet as it crosses the wire, from the IP header to the last byte before the ICRC.
struct Frame {
  Buffer bytes;
  std::vector<Range> masks;
};

void append(Buffer& out, Bytes bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }
void append_u8(Buffer& out, unsigned v) { out.push_back(static_cast<std::byte>(v)); }
void append_be16(Buffer& out, unsigned v) {
  append_u8(out, v >> 8 & 0xFF);
  append_u8(out, v & 0xFF);
}

// The fields that routers change hold 0x5A…, so that forgetting their mask must show.
Frame make_frame(const IpUdp& ip, Bytes covered) {
  Frame frame;
  Buffer& b = frame.bytes;
  const unsigned udp_length = 8u + ip.udp_payload_bytes;
  if (ip.source.is_v4()) {
    append_u8(b, 0x45);
    append_u8(b, 0x5A);
    append_be16(b, 20 + udp_length);
    append_be16(b, ip.ip_id);
    append_be16(b, ip.dont_fragment ? 0x4000 : 0);
    append_u8(b, 0x5A);
    append_u8(b, 17);
    append_be16(b, 0x5A5B);
    append(b, std::as_bytes(std::span(ip.source.bytes)).last(4));
    append(b, std::as_bytes(std::span(ip.destination.bytes)).last(4));
    frame.masks = {{1, 1}, {8, 1}, {10, 2}, {26, 2}, {32, 1}};
  } else {
    append_u8(b, 0x65);
    append_u8(b, 0xA5);
    append_be16(b, 0x5A5B);
    append_be16(b, udp_length);
    append_u8(b, 17);
    append_u8(b, 0x5A);
    append(b, std::as_bytes(std::span(ip.source.bytes)));
    append(b, std::as_bytes(std::span(ip.destination.bytes)));
    frame.masks = {{0, 1, 0x0F}, {1, 1}, {2, 2}, {7, 1}, {46, 2}, {52, 1}};
  }
  append_be16(b, ip.source_port);
  append_be16(b, ip.destination_port);
  append_be16(b, udp_length);
  append_be16(b, 0x5A5B);
  append(b, covered);
  return frame;
}

constexpr std::size_t nothing_left_out = 1000;

std::uint32_t reference(Frame frame, std::size_t left_out_mask = nothing_left_out, std::size_t ones = 8) {
  for (std::size_t i = 0; i < frame.masks.size(); ++i) {
    if (i == left_out_mask) continue;
    for (std::size_t k = 0; k < frame.masks[i].bytes; ++k)
      frame.bytes[frame.masks[i].offset + k] |= std::byte{frame.masks[i].bits};
  }
  frame.bytes.insert(frame.bytes.begin(), ones, std::byte{0xFF});
  return bitwise_crc32(frame.bytes);
}

// --- Random datagrams

struct Sample {
  IpUdp ip;
  Buffer datagram;  // with a right ICRC
  Bytes covered() const { return Bytes(datagram).first(datagram.size() - icrc_bytes); }
};

void seal(Sample& sample) {
  Icrc crc(sample.ip);
  crc.update_headers(sample.covered());
  store_icrc(sample.datagram.data() + sample.datagram.size() - icrc_bytes, crc.value());
}

Sample random_sample(Prng& prng, bool v4, std::size_t datagram_bytes) {
  Sample s;
  s.datagram.resize(datagram_bytes);
  for (std::byte& b : s.datagram) b = static_cast<std::byte>(prng.below(256));
  s.datagram[4] &= std::byte{0x5A};  // never all ones: its mask must show
  for (IpAddress* address : {&s.ip.source, &s.ip.destination}) {
    for (auto& b : address->bytes) b = static_cast<std::uint8_t>(prng.next());
    address->bytes[0] = 0xFD;
    if (v4) *address = IpAddress::v4(10, address->bytes[1], address->bytes[2], address->bytes[3]);
  }
  s.ip.source_port = static_cast<std::uint16_t>(prng.next());
  s.ip.ip_id = static_cast<std::uint16_t>(prng.next());
  s.ip.dont_fragment = prng.chance(0.5);
  s.ip.udp_payload_bytes = static_cast<std::uint16_t>(datagram_bytes);
  seal(s);
  return s;
}

std::size_t random_size(Prng& prng) { return 16 + prng.below(400); }

TEST(Icrc, ReferenceIsCrc32) {
  constexpr std::string_view check = "123456789";
  EXPECT_EQ(bitwise_crc32(std::as_bytes(std::span(check))), 0xCBF43926u);
}

TEST(Icrc, AgreesWithTheReference) {
  Prng prng(1);
  for (int i = 0; i < 400; ++i) {
    const Sample s = random_sample(prng, prng.chance(0.5), random_size(prng));
    Icrc crc(s.ip);
    crc.update_headers(s.covered());
    EXPECT_EQ(crc.value(), reference(make_frame(s.ip, s.covered())));
    EXPECT_EQ(check_icrc(s.ip, s.datagram, true), IcrcVerdict::good_exact);
    EXPECT_EQ(check_icrc(s.ip, s.datagram), IcrcVerdict::good_exact);
  }
}

// Negative controls: the checksum that any sloppier recipe gives is refused.
TEST(Icrc, EveryMaskAndThePrefixMatter) {
  Prng prng(2);
  for (int i = 0; i < 50; ++i) {
    Sample s = random_sample(prng, i % 2 == 0, random_size(prng));
    const Frame frame = make_frame(s.ip, s.covered());
    std::byte* const trailer = s.datagram.data() + s.datagram.size() - icrc_bytes;
    const auto refused = [&](std::uint32_t crc) {
      store_icrc(trailer, crc);
      return check_icrc(s.ip, s.datagram, true) == IcrcVerdict::bad;
    };
    for (std::size_t mask = 0; mask < frame.masks.size(); ++mask)
      EXPECT_TRUE(refused(reference(frame, mask))) << "mask " << mask << " of " << frame.masks.size();
    EXPECT_TRUE(refused(reference(frame, nothing_left_out, 0)));
    EXPECT_TRUE(refused(__builtin_bswap32(reference(frame))));
    EXPECT_FALSE(refused(reference(frame)));
  }
}

TEST(Icrc, EveryBitOfTheDatagramIsCoveredButBthByte4) {
  Prng prng(3);
  for (const bool v4 : {true, false}) {
    Sample s = random_sample(prng, v4, 96);
    for (std::size_t bit = 0; bit < 8 * s.datagram.size(); ++bit) {
      const std::byte flip{static_cast<std::uint8_t>(1u << bit % 8)};
      s.datagram[bit / 8] ^= flip;
      EXPECT_EQ(check_icrc(s.ip, s.datagram, true), bit / 8 == 4 ? IcrcVerdict::good_exact : IcrcVerdict::bad)
          << "bit " << bit;
      s.datagram[bit / 8] ^= flip;
    }
  }
}

TEST(Icrc, AddressesPortsLengthAndFragmentFlagAreCovered) {
  Prng prng(4);
  for (const bool v4 : {true, false}) {
    const Sample s = random_sample(prng, v4, 64);
    const auto refused = [&](auto change) {
      IpUdp other = s.ip;
      change(other);
      return check_icrc(other, s.datagram, true) == IcrcVerdict::bad;
    };
    EXPECT_TRUE(refused([](IpUdp& ip) { ip.source.bytes[15] ^= 1; }));
    EXPECT_TRUE(refused([](IpUdp& ip) { ip.destination.bytes[12] ^= 0x80; }));
    EXPECT_TRUE(refused([](IpUdp& ip) { ip.source_port ^= 1; }));
    EXPECT_TRUE(refused([](IpUdp& ip) { ip.destination_port ^= 1; }));
    EXPECT_TRUE(refused([](IpUdp& ip) { ip.udp_payload_bytes ^= 4; }));
    // IPv6 has neither of these two.
    EXPECT_EQ(refused([](IpUdp& ip) { ip.dont_fragment = !ip.dont_fragment; }), v4);
    EXPECT_EQ(refused([](IpUdp& ip) { ip.ip_id ^= 1; }), v4);
  }
}

TEST(Icrc, PiecesOfAnySizeGiveTheSame) {
  Prng prng(5);
  for (int i = 0; i < 300; ++i) {
    const Sample s = random_sample(prng, prng.chance(0.5), random_size(prng));
    const Bytes covered = s.covered();
    std::size_t at = 12 + prng.below(covered.size() - 11);
    Icrc crc(s.ip);
    crc.update_headers(covered.first(at));
    while (at < covered.size()) {
      const std::size_t bytes = prng.below(covered.size() - at + 1);
      crc.update(covered.subspan(at, bytes));
      at += bytes;
    }
    EXPECT_EQ(crc.value(), load_icrc(s.datagram.data() + covered.size()));
  }
}

TEST(Icrc, StoredLeastSignificantByteFirst) {
  std::array<std::byte, 4> out{};
  store_icrc(out.data(), 0x11223344);
  EXPECT_EQ(out, (std::array{std::byte{0x44}, std::byte{0x33}, std::byte{0x22}, std::byte{0x11}}));
  EXPECT_EQ(load_icrc(out.data()), 0x11223344u);
}

// --- The unknown IP identification

TEST(Icrc, ChangesItsIdentificationWithoutThePacket) {
  Prng prng(19);
  for (int i = 0; i < 200; ++i) {
    Sample s = random_sample(prng, true, 16 + 4 * prng.below(1030));
    const std::uint32_t before = load_icrc(s.datagram.data() + s.covered().size());
    const std::uint16_t from = s.ip.ip_id;
    s.ip.ip_id = static_cast<std::uint16_t>(prng.next());
    seal(s);
    EXPECT_EQ(change_identification(before, from, s.ip.ip_id, s.datagram.size()),
              load_icrc(s.datagram.data() + s.covered().size()));
  }
}

TEST(IcrcAffine, EveryIdentificationIsRecognised) {
  Prng prng(6);
  for (int i = 0; i < 0x10000; ++i) {
    Sample s = random_sample(prng, true, 16 + 4 * prng.below(8));
    s.ip.ip_id = static_cast<std::uint16_t>(i);
    seal(s);
    s.ip.ip_id = 0;
    ASSERT_EQ(check_icrc(s.ip, s.datagram), i == 0 ? IcrcVerdict::good_exact : IcrcVerdict::good_affine) << i;
    ASSERT_EQ(check_icrc(s.ip, s.datagram, true), i == 0 ? IcrcVerdict::good_exact : IcrcVerdict::bad) << i;
  }
}

TEST(IcrcAffine, AtEveryLength) {
  Prng prng(7);
  std::vector<std::size_t> sizes{65504, 65507};
  for (std::size_t bytes = 16; bytes <= 4132; bytes += 3) sizes.push_back(bytes);
  for (const std::size_t bytes : sizes) {
    Sample s = random_sample(prng, true, bytes);
    const auto real_id = s.ip.ip_id;
    for (const auto guess : {0, 0xFFFF, real_id ^ 0x0100}) {
      if (guess == real_id) continue;
      s.ip.ip_id = static_cast<std::uint16_t>(guess);
      ASSERT_EQ(check_icrc(s.ip, s.datagram), IcrcVerdict::good_affine) << bytes << " bytes";
    }
  }
}

// Exactly the 65536 checksums that some identification gives are accepted, no other.
TEST(IcrcAffine, AgreesWithTryingThemAll) {
  Prng prng(8);
  for (const std::size_t bytes : {16, 20, 300}) {
    Sample s = random_sample(prng, true, bytes);
    std::unordered_set<std::uint32_t> possible;
    std::vector<std::uint32_t> candidates;
    for (int id = 0; id < 0x10000; ++id) {
      s.ip.ip_id = static_cast<std::uint16_t>(id);
      Icrc crc(s.ip);
      crc.update_headers(s.covered());
      possible.insert(crc.value());
      if (id % 64 == 0) candidates.push_back(crc.value() ^ 1u << prng.below(32));
    }
    ASSERT_EQ(possible.size(), 0x10000u) << "two identifications gave one checksum";
    for (int i = 0; i < 200'000; ++i) candidates.push_back(static_cast<std::uint32_t>(prng.next()));
    s.ip.ip_id = 0;
    for (const std::uint32_t icrc : candidates) {
      store_icrc(s.datagram.data() + bytes - icrc_bytes, icrc);
      ASSERT_EQ(check_icrc(s.ip, s.datagram) != IcrcVerdict::bad, possible.contains(icrc));
    }
  }
}

TEST(IcrcAffine, Ipv6IsAlwaysExact) {
  Prng prng(9);
  for (int i = 0; i < 2000; ++i) {
    Sample s = random_sample(prng, false, random_size(prng));
    ASSERT_EQ(check_icrc(s.ip, s.datagram), IcrcVerdict::good_exact);
    s.datagram[prng.below(s.datagram.size() - 12) + 12] ^= std::byte{4};
    ASSERT_EQ(check_icrc(s.ip, s.datagram), IcrcVerdict::bad);
  }
}

}  // namespace
}  // namespace beeline::wire
