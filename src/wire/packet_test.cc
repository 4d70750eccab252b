#include "wire/packet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/random.h"
#include "wire/printer.h"

namespace beeline::wire {
namespace {

using Datagram = std::vector<std::byte>;

void fill_random(Prng& prng, MutableBytes out) {
  for (std::byte& b : out) b = static_cast<std::byte>(prng.below(256));
}

const OpcodeInfo& random_row(Prng& prng) { return opcode_table()[prng.below(opcode_table().size())]; }

// Headers with every field random that the opcode carries, and zero where it carries none.
Headers random_headers(Prng& prng, const OpcodeInfo& row, std::uint8_t pad_count) {
  Headers h;
  h.bth.opcode = row.opcode;
  h.bth.solicited = prng.chance(0.5);
  h.bth.migration_request = prng.chance(0.5);
  h.bth.pad_count = pad_count;
  h.bth.pkey = static_cast<std::uint16_t>(prng.next());
  h.bth.fecn = prng.chance(0.5);
  h.bth.becn = prng.chance(0.5);
  h.bth.destination = Qpn{static_cast<std::uint32_t>(prng.below(1 << 24))};
  h.bth.ack_request = prng.chance(0.5);
  h.bth.psn = Psn{static_cast<std::uint32_t>(prng.below(1 << 24))};
  if (row.has_reth)
    h.reth = {prng.next(), Key{static_cast<std::uint32_t>(prng.next())},
              static_cast<std::uint32_t>(prng.next())};
  if (row.has_aeth)
    h.aeth = {static_cast<std::uint8_t>(prng.next()), static_cast<std::uint32_t>(prng.below(1 << 24))};
  if (row.has_immediate) h.immediate = static_cast<std::uint32_t>(prng.next());
  if (row.has_deth)
    h.deth = {static_cast<std::uint32_t>(prng.next()), Qpn{static_cast<std::uint32_t>(prng.below(1 << 24))}};
  if (row.has_atomic_eth)
    h.atomic = {prng.next(), Key{static_cast<std::uint32_t>(prng.next())}, prng.next(), prng.next()};
  if (row.has_atomic_ack_eth) h.atomic_before = prng.next();
  if (row.has_ieth) h.invalidate = Key{static_cast<std::uint32_t>(prng.next())};
  return h;
}

Datagram build(const Headers& headers, Bytes payload) {
  std::array<std::byte, max_header_bytes> front{};
  const std::size_t bytes = emit(headers, front);
  Datagram datagram(front.begin(), front.begin() + bytes);
  datagram.insert(datagram.end(), payload.begin(), payload.end());
  datagram.resize(datagram.size() + headers.bth.pad_count + icrc_bytes);
  return datagram;
}

Datagram minimal(Opcode opcode) {
  Headers h;
  h.bth.opcode = opcode;
  return build(h, {});
}

std::size_t random_payload_bytes(Prng& prng, const OpcodeInfo& row) {
  return row.payload == PayloadRule::none ? 0 : prng.below(4097);
}

TEST(Packet, ParseOfEmitIsTheIdentity) {
  Prng prng(1);
  for (int i = 0; i < 20'000; ++i) {
    const OpcodeInfo& row = random_row(prng);
    Datagram payload(random_payload_bytes(prng, row));
    fill_random(prng, payload);
    const Headers headers = random_headers(prng, row, pad_for(payload.size()));
    const Datagram datagram = build(headers, payload);

    const auto view = parse(datagram);
    ASSERT_TRUE(view) << name(view.error()) << ": " << to_string(headers, payload.size());
    EXPECT_EQ(view->info, &row);
    EXPECT_EQ(view->headers, headers) << to_string(headers, payload.size());
    EXPECT_TRUE(std::ranges::equal(view->payload, payload));
    EXPECT_EQ(view->payload.data(), datagram.data() + header_bytes(row)) << "the payload was copied";
    EXPECT_EQ(build(view->headers, view->payload), datagram);
  }
}

// Whatever parses is reproduced, byte for byte, but for the reserved bits.
TEST(Packet, EmitOfParseIsTheIdentityButForReservedBits) {
  Prng prng(2);
  int parsed = 0;
  for (int i = 0; i < 50'000; ++i) {
    Datagram datagram(16 + 4 * prng.below(16));
    fill_random(prng, datagram);
    datagram[0] = static_cast<std::byte>(random_row(prng).opcode);
    datagram[1] &= std::byte{0xF0};
    const auto view = parse(datagram);
    if (!view) continue;
    ++parsed;
    datagram[4] &= std::byte{0xC0};  // below FECN and BECN
    datagram[8] &= std::byte{0x80};  // below AckReq
    if (view->info->has_deth) datagram[bth_bytes + 4] = std::byte{0};
    std::array<std::byte, max_header_bytes> front{};
    const std::size_t bytes = emit(view->headers, front);
    ASSERT_TRUE(std::equal(front.begin(), front.begin() + bytes, datagram.begin())) << to_string(*view);
    ASSERT_EQ(bytes + view->payload.size() + view->headers.bth.pad_count + icrc_bytes, datagram.size());
  }
  EXPECT_GT(parsed, 10'000);
}

TEST(Packet, FieldsLieWhereTheSpecificationPutsThem) {
  Headers h;
  h.bth = {.opcode = Opcode::rc_write_only_imm,
           .solicited = true,
           .migration_request = false,
           .pad_count = 2,
           .pkey = 0x1234,
           .fecn = false,
           .becn = true,
           .destination = Qpn{0xABCDEF},
           .ack_request = true,
           .psn = Psn{0x010203}};
  h.reth = {0x1122334455667788, Key{0x99AABBCC}, 0xDDEEFF00};
  h.immediate = 0xCAFED00D;
  const std::array<std::uint8_t, 32> wanted{
      0x0B, 0xA0, 0x12, 0x34, 0x40, 0xAB, 0xCD, 0xEF, 0x80, 0x01, 0x02, 0x03,                          // BTH
      0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF, 0x00,  // RETH
      0xCA, 0xFE, 0xD0, 0x0D};  // ImmDt
  std::array<std::byte, max_header_bytes> out{};
  ASSERT_EQ(emit(h, out), wanted.size());
  EXPECT_TRUE(std::ranges::equal(Bytes(out).first(wanted.size()), std::as_bytes(std::span(wanted))));

  Headers ack;
  ack.bth = {.opcode = Opcode::rc_acknowledge, .migration_request = true, .fecn = true, .psn = Psn{7}};
  ack.aeth = Aeth::nak(NakCode::remote_access, 0x00BEEF);
  const std::array<std::uint8_t, 16> wanted_ack{0x11, 0x40, 0xFF, 0xFF, 0x80, 0, 0,    0,
                                                0,    0,    0,    7,    0x62, 0, 0xBE, 0xEF};
  ASSERT_EQ(emit(ack, out), wanted_ack.size());
  EXPECT_TRUE(std::ranges::equal(Bytes(out).first(16), std::as_bytes(std::span(wanted_ack))));
}

TEST(Packet, ExtensionFieldsLieWhereTheSpecificationPutsThem) {
  const auto check = [](const Headers& headers, std::initializer_list<std::uint8_t> wanted) {
    std::array<std::byte, max_header_bytes> out;
    out.fill(std::byte{0xEE});
    ASSERT_EQ(emit(headers, out), bth_bytes + wanted.size());
    EXPECT_TRUE(std::ranges::equal(Bytes(out).subspan(bth_bytes, wanted.size()),
                                   std::as_bytes(std::span(wanted.begin(), wanted.size()))));
  };
  Headers h;
  h.bth.opcode = Opcode::rc_compare_swap;
  h.atomic = {0x1122334455667788, Key{0x99AABBCC}, 0x0102030405060708, 0xF1F2F3F4F5F6F7F8};
  check(h, {0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xAA, 0xBB, 0xCC, 0x01, 0x02,
            0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0xF1, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8});
  h = {};
  h.bth.opcode = Opcode::rc_atomic_acknowledge;
  h.aeth = Aeth::ack(0x010203);
  h.atomic_before = 0x1122334455667788;
  check(h, {0x1F, 0x01, 0x02, 0x03, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88});
  h = {};
  h.bth.opcode = Opcode::rc_send_only_inv;
  h.invalidate = Key{0x01020304};
  check(h, {0x01, 0x02, 0x03, 0x04});
  h = {};
  h.bth.opcode = Opcode::ud_send_only_imm;
  h.deth = {0x80010000, Qpn{0xABCDEF}};
  h.immediate = 0xCAFED00D;
  check(h, {0x80, 0x01, 0x00, 0x00, 0x00, 0xAB, 0xCD, 0xEF, 0xCA, 0xFE, 0xD0, 0x0D});
}

TEST(Packet, EveryTruncationOfEveryOpcodeIsTooShort) {
  for (const OpcodeInfo& row : opcode_table()) {
    const Datagram datagram = minimal(row.opcode);
    ASSERT_TRUE(parse(datagram)) << row.name;
    for (std::size_t bytes = 0; bytes < datagram.size(); ++bytes) {
      const Datagram cut(datagram.begin(),
                         datagram.begin() + bytes);  // its own block: asan sees a stray read
      const auto view = parse(cut);
      ASSERT_FALSE(view) << row.name << " of " << bytes << " bytes";
      EXPECT_EQ(view.error(), ParseError::too_short) << row.name << " of " << bytes << " bytes";
    }
  }
}

TEST(Packet, UnknownOpcodes) {
  for (int value = 0; value <= 0xFF; ++value) {
    Datagram datagram(64);
    datagram[0] = static_cast<std::byte>(value);
    const auto view = parse(datagram);
    const bool unknown = !view && view.error() == ParseError::unknown_opcode;
    EXPECT_EQ(unknown, find_opcode(static_cast<std::uint8_t>(value)) == nullptr) << value;
  }
}

TEST(Packet, OnlyTransportVersionZero) {
  for (int version = 1; version < 16; ++version) {
    Datagram datagram = minimal(Opcode::rc_send_only);
    datagram[1] |= static_cast<std::byte>(version);
    const auto view = parse(datagram);
    ASSERT_FALSE(view);
    EXPECT_EQ(view.error(), ParseError::bad_version);
  }
}

TEST(Packet, LengthAndPadMustAgree) {
  for (const OpcodeInfo& row : opcode_table()) {
    if (row.payload == PayloadRule::none) continue;
    for (std::uint8_t pad = 0; pad <= 3; ++pad) {
      for (std::size_t behind = 0; behind <= 12; ++behind) {
        Headers h;
        h.bth.opcode = row.opcode;
        h.bth.pad_count = pad;
        Datagram datagram = build(h, {});
        datagram.resize(header_bytes(row) + behind + icrc_bytes);
        const auto view = parse(datagram);
        if (behind % 4 != 0 || pad > behind) {
          ASSERT_FALSE(view) << row.name << " pad " << int{pad} << " in " << behind;
          EXPECT_EQ(view.error(), ParseError::bad_length);
        } else {
          ASSERT_TRUE(view) << row.name << " pad " << int{pad} << " in " << behind;
          EXPECT_EQ(view->payload.size(), behind - pad);
        }
      }
    }
  }
}

TEST(Packet, PayloadWhereThereIsNone) {
  for (const Opcode opcode : {Opcode::rc_read_request, Opcode::rc_acknowledge, Opcode::rc_atomic_acknowledge,
                              Opcode::rc_compare_swap, Opcode::rc_fetch_add}) {
    Datagram datagram = minimal(opcode);
    datagram.resize(datagram.size() + 4);
    const auto view = parse(datagram);
    ASSERT_FALSE(view);
    EXPECT_EQ(view.error(), ParseError::unexpected_payload);

    datagram = minimal(opcode);
    datagram[1] |= std::byte{1 << 4};  // a pad byte that is not there
    const auto padded = parse(datagram);
    ASSERT_FALSE(padded);
    EXPECT_EQ(padded.error(), ParseError::bad_length);
  }
}

TEST(Packet, PadFillsToFour) {
  for (std::size_t bytes = 0; bytes < 20; ++bytes) {
    EXPECT_LE(pad_for(bytes), 3);
    EXPECT_EQ((bytes + pad_for(bytes)) % 4, 0u);
  }
}

TEST(Packet, PayloadFitsThePathMtu) {
  for (const std::size_t mtu : {256, 512, 1024, 2048, 4096}) {
    for (const OpcodeInfo& row : opcode_table()) {
      SCOPED_TRACE(row.name);
      const bool none = row.payload == PayloadRule::none, full = row.payload == PayloadRule::full;
      EXPECT_EQ(payload_fits(row, 0, mtu), none || row.payload == PayloadRule::zero_to_mtu);
      EXPECT_EQ(payload_fits(row, 1, mtu), !none && !full);
      EXPECT_EQ(payload_fits(row, mtu - 1, mtu), !none && !full);
      EXPECT_EQ(payload_fits(row, mtu, mtu), !none);
      EXPECT_FALSE(payload_fits(row, mtu + 1, mtu));
    }
  }
}

TEST(PacketDeathTest, EmitNeedsRoom) {
  std::array<std::byte, max_header_bytes - 1> small{};
  EXPECT_DEATH(emit(Headers{}, small), "max_header_bytes");
}

TEST(Packet, ErrorNamesDiffer) {
  const std::array errors{ParseError::too_short, ParseError::unknown_opcode, ParseError::bad_version,
                          ParseError::bad_length, ParseError::unexpected_payload};
  for (const ParseError a : errors)
    for (const ParseError b : errors) EXPECT_EQ(a == b, name(a) == name(b));
}

}  // namespace
}  // namespace beeline::wire
