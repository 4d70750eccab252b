#include "wire/opcode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "wire/headers.h"

namespace beeline::wire {
namespace {

// Written down a second time, from the specification's table of opcodes and their
// header sequences, so that a slip in the table under test shows.
struct Expected {
  std::string_view name;
  std::size_t header_bytes;
};
const std::map<int, Expected> expected{
    {0x00, {"RC SEND FIRST", 12}},
    {0x01, {"RC SEND MIDDLE", 12}},
    {0x02, {"RC SEND LAST", 12}},
    {0x03, {"RC SEND LAST IMM", 12 + 4}},
    {0x04, {"RC SEND ONLY", 12}},
    {0x05, {"RC SEND ONLY IMM", 12 + 4}},
    {0x06, {"RC WRITE FIRST", 12 + 16}},
    {0x07, {"RC WRITE MIDDLE", 12}},
    {0x08, {"RC WRITE LAST", 12}},
    {0x09, {"RC WRITE LAST IMM", 12 + 4}},
    {0x0A, {"RC WRITE ONLY", 12 + 16}},
    {0x0B, {"RC WRITE ONLY IMM", 12 + 16 + 4}},
    {0x0C, {"RC READ REQUEST", 12 + 16}},
    {0x0D, {"RC READ RESPONSE FIRST", 12 + 4}},
    {0x0E, {"RC READ RESPONSE MIDDLE", 12}},
    {0x0F, {"RC READ RESPONSE LAST", 12 + 4}},
    {0x10, {"RC READ RESPONSE ONLY", 12 + 4}},
    {0x11, {"RC ACKNOWLEDGE", 12 + 4}},
    {0x12, {"RC ATOMIC ACKNOWLEDGE", 12 + 4 + 8}},
    {0x13, {"RC COMPARE SWAP", 12 + 28}},
    {0x14, {"RC FETCH ADD", 12 + 28}},
    {0x16, {"RC SEND LAST INV", 12 + 4}},
    {0x17, {"RC SEND ONLY INV", 12 + 4}},
    {0x20, {"UC SEND FIRST", 12}},
    {0x21, {"UC SEND MIDDLE", 12}},
    {0x22, {"UC SEND LAST", 12}},
    {0x23, {"UC SEND LAST IMM", 12 + 4}},
    {0x24, {"UC SEND ONLY", 12}},
    {0x25, {"UC SEND ONLY IMM", 12 + 4}},
    {0x26, {"UC WRITE FIRST", 12 + 16}},
    {0x27, {"UC WRITE MIDDLE", 12}},
    {0x28, {"UC WRITE LAST", 12}},
    {0x29, {"UC WRITE LAST IMM", 12 + 4}},
    {0x2A, {"UC WRITE ONLY", 12 + 16}},
    {0x2B, {"UC WRITE ONLY IMM", 12 + 16 + 4}},
    {0x64, {"UD SEND ONLY", 12 + 8}},
    {0x65, {"UD SEND ONLY IMM", 12 + 8 + 4}},
};

bool has_word(std::string_view text, std::string_view word) { return text.find(word) != text.npos; }

TEST(Opcode, EveryByteIsFoundExactlyWhenItIsSpoken) {
  for (int value = 0; value <= 0xFF; ++value) {
    const OpcodeInfo* row = find_opcode(static_cast<std::uint8_t>(value));
    const auto entry = expected.find(value);
    ASSERT_EQ(row != nullptr, entry != expected.end()) << "opcode " << value;
    if (row == nullptr) continue;
    EXPECT_EQ(static_cast<int>(row->opcode), value);
    EXPECT_EQ(row->name, entry->second.name);
    EXPECT_EQ(header_bytes(*row), entry->second.header_bytes) << row->name;
    EXPECT_LE(header_bytes(*row), max_header_bytes);
    EXPECT_EQ(&info(row->opcode), row);
  }
}

TEST(Opcode, TableIsAscendingAndComplete) {
  const auto table = opcode_table();
  ASSERT_EQ(table.size(), expected.size());
  const auto by_opcode = [](const OpcodeInfo& a, const OpcodeInfo& b) { return a.opcode < b.opcode; };
  EXPECT_TRUE(std::is_sorted(table.begin(), table.end(), by_opcode));
  std::set<std::string_view> names;
  for (const OpcodeInfo& row : table) EXPECT_TRUE(names.insert(row.name).second) << row.name;
}

// A row's name says what its columns must say.
TEST(Opcode, ColumnsAgreeWithTheName) {
  for (const OpcodeInfo& row : opcode_table()) {
    SCOPED_TRACE(row.name);
    const bool atomic = has_word(row.name, "COMPARE SWAP") || has_word(row.name, "FETCH ADD");
    EXPECT_EQ(row.service == Service::rc, has_word(row.name, "RC "));
    EXPECT_EQ(row.service == Service::uc, has_word(row.name, "UC "));
    EXPECT_EQ(row.service == Service::ud, has_word(row.name, "UD "));
    const bool request = has_word(row.name, "REQUEST"), response = has_word(row.name, "RESPONSE");
    EXPECT_EQ(row.kind == Kind::send, has_word(row.name, "SEND"));
    EXPECT_EQ(row.kind == Kind::write, has_word(row.name, "WRITE"));
    EXPECT_EQ(row.kind == Kind::read_request, request);
    EXPECT_EQ(row.kind == Kind::read_response, response);
    EXPECT_EQ(row.kind == Kind::atomic_request, atomic);
    EXPECT_EQ(row.kind == Kind::atomic_acknowledge, has_word(row.name, "ATOMIC ACK"));
    EXPECT_EQ(row.is_request(), !response && !has_word(row.name, "ACKNOWLEDGE"));
    EXPECT_EQ(row.has_immediate, has_word(row.name, "IMM"));
    EXPECT_EQ(row.starts_message(), !has_word(row.name, "MIDDLE") && !has_word(row.name, "LAST"));
    EXPECT_EQ(row.ends_message(), !has_word(row.name, "MIDDLE") && !has_word(row.name, "FIRST"));
    EXPECT_EQ(row.has_reth, request || (row.kind == Kind::write && row.starts_message()));
    EXPECT_EQ(row.has_aeth,
              has_word(row.name, "ACKNOWLEDGE") || (response && row.position != Position::middle));
    EXPECT_EQ(row.has_atomic_eth, atomic);
    EXPECT_EQ(row.has_atomic_ack_eth, row.kind == Kind::atomic_acknowledge);
    EXPECT_EQ(row.has_ieth, has_word(row.name, "INV"));
    EXPECT_EQ(row.has_deth, row.service == Service::ud);
  }
}

// IBTA vol. 1, 9.4.1: first and middle are full, last is not empty, only may be.
TEST(Opcode, PayloadRuleFollowsThePosition) {
  for (const OpcodeInfo& row : opcode_table()) {
    SCOPED_TRACE(row.name);
    if (row.kind != Kind::send && row.kind != Kind::write && row.kind != Kind::read_response) {
      EXPECT_EQ(row.payload, PayloadRule::none);
      continue;
    }
    switch (row.position) {
      case Position::first:
      case Position::middle:
        EXPECT_EQ(row.payload, PayloadRule::full);
        break;
      case Position::last:
        EXPECT_EQ(row.payload, PayloadRule::one_to_mtu);
        break;
      case Position::only:
        EXPECT_EQ(row.payload, PayloadRule::zero_to_mtu);
        break;
    }
  }
}

TEST(OpcodeDeathTest, InfoOfAnUnknownOpcodeIsOurMistake) {
  EXPECT_DEATH(info(Opcode{0x66}), "entry != nullptr");
}

}  // namespace
}  // namespace beeline::wire
