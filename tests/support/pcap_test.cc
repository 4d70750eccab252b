#include "support/pcap.h"

#include <gtest/gtest.h>

#include <string>

#include "base/random.h"

namespace beeline::test {
namespace {

using Buffer = std::vector<std::byte>;

void append(Buffer& out, std::initializer_list<int> bytes) {
  for (const int b : bytes) out.push_back(static_cast<std::byte>(b));
}
void append(Buffer& out, const Buffer& bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }
void append_be16(Buffer& out, std::size_t v) {
  append(out, {static_cast<int>(v >> 8 & 0xFF), static_cast<int>(v & 0xFF)});
}
void append_u32(Buffer& out, std::size_t v, bool big_endian) {
  for (int i = 0; i < 4; ++i) append(out, {static_cast<int>(v >> 8 * (big_endian ? 3 - i : i) & 0xFF)});
}

Buffer file_header(bool big_endian = false, std::uint32_t magic = 0xA1B2C3D4, std::uint32_t link_type = 1) {
  Buffer out;
  append_u32(out, magic, big_endian);
  append(out, Buffer(12));
  append_u32(out, 65535, big_endian);
  append_u32(out, link_type, big_endian);
  return out;
}

struct Stamp {
  std::uint32_t seconds = 0, fraction = 0;
};

void append_record(Buffer& file, const Buffer& frame, Stamp stamp = {}, bool big_endian = false,
                   std::size_t missing = 0) {
  append_u32(file, stamp.seconds, big_endian);
  append_u32(file, stamp.fraction, big_endian);
  append_u32(file, frame.size(), big_endian);
  append_u32(file, frame.size() + missing, big_endian);
  append(file, frame);
}

Buffer udp(const Buffer& payload, std::size_t destination_port = 4791) {
  Buffer out;
  append_be16(out, 0xC001);
  append_be16(out, destination_port);
  append_be16(out, 8 + payload.size());
  append_be16(out, 0);
  append(out, payload);
  return out;
}

Buffer ipv4_frame(const Buffer& behind, int version_ihl = 0x45, int flags = 0x40, int protocol = 17) {
  Buffer out(12);
  append(out, {0x08, 0x00, version_ihl, 0});
  append_be16(out, 20 + behind.size());
  append(out, {0x12, 0x34, flags, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2});
  append(out, behind);
  return out;
}

Buffer ipv6_frame(const Buffer& behind, int next_header = 17) {
  Buffer out(12);
  append(out, {0x86, 0xDD, 0x60, 0, 0, 0});
  append_be16(out, behind.size());
  append(out, {next_header, 64});
  for (int host = 1; host <= 2; ++host) append(out, {0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host});
  append(out, behind);
  return out;
}

Buffer numbers(std::size_t bytes) {
  Buffer out;
  for (std::size_t i = 0; i < bytes; ++i) out.push_back(static_cast<std::byte>(i));
  return out;
}

Capture parsed(const Buffer& file) {
  auto capture = parse_pcap(file);
  EXPECT_TRUE(capture) << capture.error().message;
  return capture ? *capture : Capture{};
}

TEST(Pcap, Ipv4Frame) {
  Buffer file = file_header();
  append_record(file, ipv4_frame(udp(numbers(20))));
  const Capture capture = parsed(file);
  ASSERT_EQ(capture.frames.size(), 1u);
  const RoceFrame& frame = capture.frames[0];
  EXPECT_EQ(to_string(frame.ip_udp.source), "10.0.0.1");
  EXPECT_EQ(to_string(frame.ip_udp.destination), "10.0.0.2");
  EXPECT_EQ(frame.ip_udp.source_port, 0xC001);
  EXPECT_EQ(frame.ip_udp.destination_port, 4791);
  EXPECT_EQ(frame.ip_udp.ip_id, 0x1234);
  EXPECT_TRUE(frame.ip_udp.dont_fragment);
  EXPECT_EQ(frame.ip_udp.udp_payload_bytes, 20);
  EXPECT_EQ(frame.datagram, numbers(20));
}

TEST(Pcap, Ipv6Frame) {
  Buffer file = file_header();
  append_record(file, ipv6_frame(udp(numbers(16))));
  const Capture capture = parsed(file);
  ASSERT_EQ(capture.frames.size(), 1u);
  EXPECT_EQ(to_string(capture.frames[0].ip_udp.source), "fd00::1");
  EXPECT_EQ(to_string(capture.frames[0].ip_udp.destination), "fd00::2");
  EXPECT_EQ(capture.frames[0].datagram, numbers(16));
}

TEST(Pcap, DontFragmentClear) {
  Buffer file = file_header();
  append_record(file, ipv4_frame(udp(numbers(16)), 0x45, 0));
  ASSERT_EQ(parsed(file).frames.size(), 1u);
  EXPECT_FALSE(parsed(file).frames[0].ip_udp.dont_fragment);
}

TEST(Pcap, EthernetPaddingIsNoPayload) {
  Buffer frame = ipv4_frame(udp(numbers(16)));
  frame.resize(frame.size() + 6);
  Buffer file = file_header();
  append_record(file, frame);
  ASSERT_EQ(parsed(file).frames.size(), 1u);
  EXPECT_EQ(parsed(file).frames[0].datagram, numbers(16));
}

TEST(Pcap, ByteOrdersAndUnitsOfTime) {
  for (const bool big_endian : {false, true}) {
    for (const bool nanoseconds : {false, true}) {
      Buffer file = file_header(big_endian, nanoseconds ? 0xA1B23C4D : 0xA1B2C3D4);
      append_record(file, ipv4_frame(udp(numbers(16))), {100, 999'999}, big_endian);
      append_record(file, ipv4_frame(udp(numbers(16))), {101, 1}, big_endian);
      const Capture capture = parsed(file);
      ASSERT_EQ(capture.frames.size(), 2u);
      EXPECT_EQ(capture.frames[0].captured, TimePoint{0});
      EXPECT_EQ(capture.frames[1].captured, (TimePoint{nanoseconds ? 999'000'002 : 2'000}));
    }
  }
}

TEST(Pcap, EverythingElseIsCounted) {
  const Buffer good = udp(numbers(16));
  Buffer file = file_header();
  append_record(file, Buffer(13));                        // malformed: no Ethernet header
  append_record(file, Buffer(60));                        // other: an unknown EtherType
  append_record(file, ipv4_frame(good, 0x46));            // other: IP options
  append_record(file, ipv4_frame(good, 0x45, 0x20));      // other: a fragment
  append_record(file, ipv4_frame(good, 0x45, 0x40, 6));   // other: TCP
  append_record(file, ipv6_frame(good, 6));               // other: TCP
  append_record(file, ipv4_frame(udp(numbers(16), 53)));  // other: DNS
  append_record(file, ipv4_frame(numbers(7)));            // malformed: half a UDP header
  Buffer longer = good;
  longer.resize(longer.size() + 1);
  append_record(file, ipv4_frame(longer));  // malformed: UDP and IP lengths differ
  Buffer cut = ipv4_frame(good);
  cut.pop_back();
  append_record(file, cut);  // malformed: IP length beyond the frame
  cut = ipv6_frame(good);
  cut.pop_back();
  append_record(file, cut);                // malformed, as above
  append_record(file, cut, {}, false, 1);  // truncated by the capture
  const Capture capture = parsed(file);
  EXPECT_EQ(capture.frames.size(), 0u);
  EXPECT_EQ(capture.other, 6u);
  EXPECT_EQ(capture.malformed, 5u);
  EXPECT_EQ(capture.truncated, 1u);
}

TEST(Pcap, EveryTruncationOfAFileIsAnErrorOrWholeRecords) {
  Buffer file = file_header();
  std::vector<std::size_t> whole{file.size()};
  for (int i = 0; i < 3; ++i) {
    append_record(file, i % 2 == 0 ? ipv4_frame(udp(numbers(20))) : ipv6_frame(udp(numbers(20))));
    whole.push_back(file.size());
  }
  std::size_t good = 0;
  for (std::size_t bytes = 0; bytes <= file.size(); ++bytes) {
    const auto capture = parse_pcap(Buffer(file.begin(), file.begin() + bytes));
    const bool at_boundary = good < whole.size() && bytes == whole[good];
    ASSERT_EQ(capture.has_value(), at_boundary) << bytes;
    if (at_boundary) {
      EXPECT_EQ(capture->frames.size(), good);
      ++good;
    }
  }
}

TEST(Pcap, RecordLengthsAreNotBelieved) {
  Buffer file = file_header();
  append(file, Buffer(8));
  append_u32(file, 0xFFFFFFFF, false);
  append_u32(file, 0xFFFFFFFF, false);
  EXPECT_FALSE(parse_pcap(file));
}

TEST(Pcap, OtherFilesAreRefused) {
  EXPECT_FALSE(parse_pcap({}));
  EXPECT_FALSE(parse_pcap(file_header(false, 0x0A0D0D0A)));       // pcapng
  EXPECT_FALSE(parse_pcap(file_header(false, 0xA1B2C3D4, 113)));  // Linux cooked
  const auto missing = read_pcap("/nonexistent/file.pcap");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message.rfind("opening /nonexistent/file.pcap", 0), 0u)
      << missing.error().message;
}

TEST(Pcap, RandomDamageNeverHurts) {
  Prng prng(1);
  Buffer clean = file_header();
  for (int i = 0; i < 4; ++i)
    append_record(clean, i % 2 == 0 ? ipv4_frame(udp(numbers(20))) : ipv6_frame(udp(numbers(20))));
  std::size_t refused = 0, read = 0;
  for (int round = 0; round < 5000; ++round) {
    Buffer file = clean;
    for (std::size_t flips = 1 + prng.below(4); flips > 0; --flips)
      file[prng.below(file.size())] = static_cast<std::byte>(prng.below(256));
    const auto capture = parse_pcap(file);
    if (!capture) {
      ++refused;
      continue;
    }
    ++read;
    for (const RoceFrame& frame : capture->frames)
      ASSERT_EQ(frame.datagram.size(), frame.ip_udp.udp_payload_bytes);
  }
  EXPECT_GT(refused, 100u);
  EXPECT_GT(read, 100u);
}

}  // namespace
}  // namespace beeline::test
