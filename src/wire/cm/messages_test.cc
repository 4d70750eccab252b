#include "wire/cm/messages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/random.h"
#include "wire/cm/ip_header.h"
#include "wire/cm/service_id.h"

namespace beeline::wire::cm {
namespace {

std::array<std::byte, mad_bytes> random_mad(Prng& prng, std::uint16_t attribute) {
  std::array<std::byte, mad_bytes> bytes;
  for (std::byte& b : bytes) b = static_cast<std::byte>(prng.next());
  const std::uint8_t front[] = {1, 7, 2, 3, 0, 0, 0, 0};
  std::memcpy(bytes.data(), front, sizeof front);
  store_be16(bytes.data() + 16, attribute);
  store_be16(bytes.data() + 18, 0);
  return bytes;
}

class EveryMessage : public testing::TestWithParam<std::uint16_t> {};

// Emitting what was parsed loses nothing but reserved bits: parsing that again gives the same value.
TEST_P(EveryMessage, ParsingAndEmittingAreInverse) {
  Prng prng(GetParam());
  for (int i = 0; i < 200; ++i) {
    const auto bytes = random_mad(prng, GetParam());
    const auto mad = parse(bytes);
    ASSERT_TRUE(mad);
    EXPECT_EQ(mad->message.index(), GetParam() - 0x10u);
    const auto again = emit(*mad);
    const auto second = parse(again);
    ASSERT_TRUE(second);
    EXPECT_EQ(*second, *mad);
    for (std::size_t at = 0; at < mad_bytes; ++at)
      EXPECT_EQ(again[at] & ~bytes[at], std::byte{0}) << "a bit that was not there, in byte " << at;
  }
}

// Private data go to the very end of the message, and no bit of it is anything else's.
TEST_P(EveryMessage, EveryLastByteIsPrivateData) {
  Prng prng(7);
  auto bytes = random_mad(prng, GetParam());
  bytes[mad_bytes - 1] = std::byte{0xA5};
  EXPECT_EQ(emit(parse(bytes).value())[mad_bytes - 1], std::byte{0xA5});
}

INSTANTIATE_TEST_SUITE_P(All, EveryMessage, testing::Range<std::uint16_t>(0x10, 0x19));

TEST(Mad, OnlyConnectionManagementIsTaken) {
  Prng prng(1);
  const auto good = random_mad(prng, 0x10);
  ASSERT_TRUE(parse(good));
  const auto error_with = [&](std::size_t at, std::uint8_t value) {
    auto bytes = good;
    bytes[at] = std::byte{value};
    const auto mad = parse(bytes);
    EXPECT_FALSE(mad);
    return mad ? MadError::bad_length : mad.error();
  };
  EXPECT_EQ(error_with(0, 2), MadError::bad_version);
  EXPECT_EQ(error_with(1, 1), MadError::other_class);
  EXPECT_EQ(error_with(2, 1), MadError::bad_version);
  EXPECT_EQ(error_with(3, 0x83), MadError::bad_method);
  EXPECT_EQ(error_with(17, 0x0F), MadError::unknown_attribute);
  EXPECT_EQ(error_with(17, 0x19), MadError::unknown_attribute);
  EXPECT_EQ(error_with(16, 0xFF), MadError::unknown_attribute);
  EXPECT_EQ(parse(Bytes(good).first(255)).error(), MadError::bad_length);
  EXPECT_EQ(parse({}).error(), MadError::bad_length);
}

TEST(IpHeader, BothFamiliesComeBack) {
  PrivateData<92> data{};
  for (const char* pair : {"10.77.0.3 10.77.0.2", "fe80::1 2001:db8::7"}) {
    const std::string text = pair;
    const IpHeader header{*parse_address(text.substr(0, text.find(' '))),
                          *parse_address(text.substr(text.find(' ') + 1)), 0xE50F};
    emit(header, data);
    EXPECT_EQ(parse_ip_header(data), header) << pair;
  }
  EXPECT_EQ(load_u8(data.data() + 1), 0x60);
}

TEST(IpHeader, NothingElseIsTaken) {
  PrivateData<92> data{};
  EXPECT_FALSE(parse_ip_header(data)) << "IP version 0";
  data[1] = std::byte{0x40};
  EXPECT_TRUE(parse_ip_header(data));
  EXPECT_FALSE(parse_ip_header(Bytes(data).first(ip_header_bytes - 1)));
  data[0] = std::byte{1};
  EXPECT_FALSE(parse_ip_header(data)) << "another version";
  data[0] = {};
  data[1] = std::byte{0x60};
  data[4 + 10] = data[4 + 11] = std::byte{0xFF};
  EXPECT_FALSE(parse_ip_header(data)) << "IPv4 in IPv6's clothes";
}

TEST(ServiceId, IsAnnexA11s) {
  EXPECT_EQ(service_id(PortSpace::tcp, 0x4853), 0x0000'0000'0106'4853u);
  EXPECT_EQ(service_id(PortSpace::udp, 7174), 0x0000'0000'0111'1C06u);
  EXPECT_TRUE(belongs_to(0x0106'4853, PortSpace::tcp));
  EXPECT_FALSE(belongs_to(0x1'0106'4853, PortSpace::tcp));
  EXPECT_EQ(port_of_service(0x0106'4853), 0x4853);
}

}  // namespace
}  // namespace beeline::wire::cm
