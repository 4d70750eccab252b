#include "wire/printer.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace beeline::wire {
namespace {

Headers with(Opcode opcode) {
  Headers h;
  h.bth.opcode = opcode;
  h.bth.destination = Qpn{0x11};
  h.bth.psn = Psn{100};
  return h;
}

TEST(Printer, Write) {
  Headers h = with(Opcode::rc_write_first);
  h.reth = {0x7F0000001000, Key{0xABCD}, 3000};
  h.bth.ack_request = true;
  EXPECT_EQ(
      to_string(h, 1024),
      "RC WRITE FIRST qp=0x000011 psn=100 va=0x7f0000001000 rkey=0x0000abcd len=3000 payload=1024 ackreq");
}

TEST(Printer, RareFlagsAndImmediate) {
  Headers h = with(Opcode::rc_send_only_imm);
  h.immediate = 0xBEEF;
  h.bth.solicited = h.bth.fecn = h.bth.becn = true;
  h.bth.pkey = 0x8001;
  EXPECT_EQ(to_string(h, 5),
            "RC SEND ONLY IMM qp=0x000011 psn=100 imm=0x0000beef payload=5 pkey=0x8001 solicited fecn becn");
}

TEST(Printer, Syndromes) {
  Headers h = with(Opcode::rc_acknowledge);
  const auto line = [&](Aeth aeth) {
    h.aeth = aeth;
    return to_string(h, 0);
  };
  EXPECT_EQ(line(Aeth::ack(3)), "RC ACKNOWLEDGE qp=0x000011 psn=100 ack msn=3");
  EXPECT_EQ(line({0x05, 3}), "RC ACKNOWLEDGE qp=0x000011 psn=100 ack credits=5 msn=3");
  EXPECT_EQ(line(Aeth::rnr_nak(12, 3)), "RC ACKNOWLEDGE qp=0x000011 psn=100 rnr_nak timer=12 msn=3");
  EXPECT_EQ(line(Aeth::nak(NakCode::psn_sequence, 3)),
            "RC ACKNOWLEDGE qp=0x000011 psn=100 nak=psn_sequence msn=3");
  EXPECT_EQ(line({0x40, 3}), "RC ACKNOWLEDGE qp=0x000011 psn=100 syndrome=0x40 msn=3");
}

// All 256 syndromes print, each of the 128 meanings (the top bit is reserved) as its own text
// but for reserved NAK codes.
TEST(Printer, EverySyndromeHasAText) {
  Headers h = with(Opcode::rc_acknowledge);
  std::set<std::string> lines;
  for (int syndrome = 0; syndrome < 128; ++syndrome) {
    h.aeth = {static_cast<std::uint8_t>(syndrome), 0};
    lines.insert(to_string(h, 0));
  }
  EXPECT_EQ(lines.size(), 32u + 32u + 32u + 4u + 1u);
}

TEST(Printer, ViewAndHeadersPrintTheSame) {
  for (const OpcodeInfo& row : opcode_table()) {
    std::array<std::byte, 64> payload{};
    const PacketView view{&row, with(row.opcode), payload};
    EXPECT_EQ(to_string(view), to_string(view.headers, payload.size()));
    EXPECT_EQ(to_string(view).rfind(row.name, 0), 0u);
  }
}

TEST(Printer, Atomics) {
  Headers h = with(Opcode::rc_compare_swap);
  h.atomic = {0x1000, Key{0xABCD}, 7, 5};
  EXPECT_EQ(to_string(h, 0),
            "RC COMPARE SWAP qp=0x000011 psn=100 va=0x1000 rkey=0x0000abcd compare=0x5 swap=0x7");
  h.bth.opcode = Opcode::rc_fetch_add;
  EXPECT_EQ(to_string(h, 0), "RC FETCH ADD qp=0x000011 psn=100 va=0x1000 rkey=0x0000abcd add=0x7");
  h = with(Opcode::rc_atomic_acknowledge);
  h.aeth = Aeth::ack(9);
  h.atomic_before = 0xFEED;
  EXPECT_EQ(to_string(h, 0), "RC ATOMIC ACKNOWLEDGE qp=0x000011 psn=100 ack msn=9 before=0xfeed");
}

TEST(Printer, InvalidateAndDatagram) {
  Headers h = with(Opcode::rc_send_last_inv);
  h.invalidate = Key{0xBEEF};
  EXPECT_EQ(to_string(h, 3), "RC SEND LAST INV qp=0x000011 psn=100 inv=0x0000beef payload=3");
  h = with(Opcode::ud_send_only_imm);
  h.deth = {0x11111111, Qpn{0x22}};
  h.immediate = 1;
  EXPECT_EQ(to_string(h, 3),
            "UD SEND ONLY IMM qp=0x000011 psn=100 qkey=0x11111111 src_qp=0x000022 imm=0x00000001 payload=3");
}

TEST(Printer, AnOpcodeOutsideTheTable) { EXPECT_EQ(to_string(with(Opcode{0x66}), 0), "opcode 0x66"); }

}  // namespace
}  // namespace beeline::wire
