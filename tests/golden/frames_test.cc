// Every captured frame against wire/: the ICRC, the parser and the emitter.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "captures.h"
#include "wire/icrc.h"
#include "wire/packet.h"
#include "wire/printer.h"

namespace beeline::test {
namespace {

using wire::IcrcVerdict;

// How many frames of each opcode a file holds, as perftest's parameters say
// (README.md): counted by hand, not by the code under test.
struct Expected {
  const char* file;
  std::map<int, int> by_opcode;
};

const std::vector<Expected> expected{
    {"rxe-write.pcap", {{0x06, 8}, {0x07, 8}, {0x08, 8}, {0x11, 8}}},
    {"rxe-read.pcap", {{0x0C, 8}, {0x0D, 8}, {0x0E, 8}, {0x0F, 8}}},
    {"rxe-send.pcap", {{0x00, 8}, {0x01, 8}, {0x02, 8}, {0x11, 8}}},
    {"rxe-sendlat.pcap", {{0x04, 17}, {0x11, 17}}},
    {"rxe-cm_write.pcap", {{0x04, 32}, {0x06, 8}, {0x07, 8}, {0x08, 8}, {0x11, 40}, {0x64, 11}}},
    {"rxe-cm_sendlat.pcap", {{0x04, 38}, {0x11, 38}, {0x64, 9}}},
    {"rxe-atomic_fa.pcap", {{0x12, 8}, {0x14, 8}}},
    {"rxe-atomic_cas.pcap", {{0x12, 8}, {0x13, 8}}},
    {"rxe-uc_write.pcap", {{0x26, 8}, {0x27, 8}, {0x28, 8}}},
    {"rxe-ud_send.pcap", {{0x64, 16}}},
};

class GoldenFrames : public testing::TestWithParam<Expected> {
 protected:
  void SetUp() override {
    capture_ = load_golden(GetParam().file);
    int frames = 0;
    for (const auto& [opcode, count] : GetParam().by_opcode) frames += count;
    ASSERT_EQ(capture_.frames.size(), static_cast<std::size_t>(frames));
    ASSERT_EQ(capture_.truncated + capture_.malformed + capture_.other, 0u);
  }
  Capture capture_;
};

std::string file_stem(const testing::TestParamInfo<Expected>& parameter) {
  const std::string name = parameter.param.file;
  return name.substr(4, name.find('.') - 4);  // "rxe-" … ".pcap"
}

TEST_P(GoldenFrames, IcrcMatchesExactlyWithTheRealIdentification) {
  for (const RoceFrame& frame : capture_.frames)
    EXPECT_EQ(wire::check_icrc(frame.ip_udp, frame.datagram, true), IcrcVerdict::good_exact);
}

// What a plain UDP socket can tell.
TEST_P(GoldenFrames, IcrcIsExplainedWithoutTheIdentification) {
  for (RoceFrame& frame : capture_.frames) {
    const bool was_zero = frame.ip_udp.ip_id == 0;
    frame.ip_udp.ip_id = 0;
    EXPECT_EQ(wire::check_icrc(frame.ip_udp, frame.datagram),
              was_zero ? IcrcVerdict::good_exact : IcrcVerdict::good_affine);
    EXPECT_EQ(wire::check_icrc(frame.ip_udp, frame.datagram, true),
              was_zero ? IcrcVerdict::good_exact : IcrcVerdict::bad);
  }
}

// With 16 bits of strength left, one damaged packet in 65536 passes: none of these does.
TEST_P(GoldenFrames, DamageIsSeenWithAndWithoutTheIdentification) {
  for (RoceFrame& frame : capture_.frames) {
    wire::IpUdp unknown = frame.ip_udp;
    unknown.ip_id = 0;
    for (const std::size_t at : {std::size_t{0}, std::size_t{5}, std::size_t{11}, frame.datagram.size() - 5,
                                 frame.datagram.size() - 1}) {
      frame.datagram[at] ^= std::byte{0x11};
      EXPECT_EQ(wire::check_icrc(frame.ip_udp, frame.datagram, true), IcrcVerdict::bad) << at;
      EXPECT_EQ(wire::check_icrc(unknown, frame.datagram), IcrcVerdict::bad) << at;
      frame.datagram[at] ^= std::byte{0x11};
    }
  }
}

TEST_P(GoldenFrames, EveryFrameParsesAndEveryOpcodeIsCounted) {
  std::map<int, int> seen;
  for (const RoceFrame& frame : capture_.frames) {
    const int opcode = load_u8(frame.datagram.data());
    ++seen[opcode];
    const auto view = wire::parse(frame.datagram);
    ASSERT_TRUE(view) << wire::name(view.error());
    EXPECT_EQ(static_cast<int>(view->headers.bth.opcode), opcode);
    EXPECT_TRUE(wire::payload_fits(*view->info, view->payload.size(), 1024)) << wire::to_string(*view);
  }
  EXPECT_EQ(seen, GetParam().by_opcode);
}

// Headers, payload, pad and ICRC put together again from the parsed values: no field differs.
TEST_P(GoldenFrames, EmittedAgainByteForByte) {
  for (const RoceFrame& frame : capture_.frames) {
    const auto view = wire::parse(frame.datagram);
    ASSERT_TRUE(view);
    std::vector<std::byte> again(wire::max_header_bytes);
    again.resize(wire::emit(view->headers, again));
    wire::Icrc icrc(frame.ip_udp);
    icrc.update_headers(again);
    again.insert(again.end(), view->payload.begin(), view->payload.end());
    again.resize(again.size() + wire::pad_for(view->payload.size()));
    icrc.update(Bytes(again).subspan(wire::header_bytes(*view->info)));
    again.resize(again.size() + wire::icrc_bytes);
    wire::store_icrc(again.data() + again.size() - wire::icrc_bytes, icrc.value());
    EXPECT_EQ(again, frame.datagram) << wire::to_string(*view);
  }
}

INSTANTIATE_TEST_SUITE_P(Rxe, GoldenFrames, testing::ValuesIn(expected), file_stem);

}  // namespace
}  // namespace beeline::test
