#include "exec/message.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace beeline::exec {
namespace {

Message example() {
  return {.kind = MessageKind::advert,
          .call = {.sequence = 0x0102030405060708,
                   .count = 0x1112131415161718,
                   .root = -5,
                   .operation = coll::Operation::broadcast,
                   .dtype = DType::int64,
                   .redop = RedOp::avg,
                   .communicator = 0x21222324},
          .address = 0x3132333435363738,
          .rkey = 0x41424344,
          .bytes = 0x51525354,
          .piece = 0x61626364,
          .ordinal = 0x71727374,
          .ticket = 0x81828384};
}

TEST(Message, ComesBackAsItWas) {
  const auto decoded = decode(encode(example()));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->kind, MessageKind::advert);
  EXPECT_EQ(decoded->call, example().call);
  EXPECT_EQ(decoded->address, example().address);
  EXPECT_EQ(decoded->rkey, example().rkey);
  EXPECT_EQ(decoded->bytes, example().bytes);
  EXPECT_EQ(decoded->piece, example().piece);
  EXPECT_EQ(decoded->ordinal, example().ordinal);
  EXPECT_EQ(decoded->ticket, example().ticket);
  EXPECT_EQ(encode(*decoded), encode(example()));
}

// Only the four bytes of enumerations can be wrong; every value of each is tried.
TEST(Message, OfAnUnknownKindOperationTypeOrReductionIsRefused) {
  const int last[] = {6, 4, 4, 2}, first[] = {1, 0, 0, 0};
  for (std::size_t at = 0; at < 4; ++at)
    for (int value = 0; value < 256; ++value) {
      auto bytes = encode(example());
      bytes[at] = std::byte{static_cast<std::uint8_t>(value)};
      EXPECT_EQ(decode(bytes).has_value(), value >= first[at] && value <= last[at]) << at << " " << value;
    }
}

TEST(Message, OfAnotherLengthIsRefused) {
  std::vector<std::byte> bytes(2 * message_bytes, std::byte{1});
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_EQ(decode(Bytes(bytes).first(length)).has_value(), length == message_bytes);
}

TEST(Fingerprint, LeavesOutWhatMeansNothing) {
  Call call{.operation = coll::Operation::barrier,
            .count = 7,
            .dtype = DType::int64,
            .redop = RedOp::max,
            .root = Rank{3}};
  EXPECT_EQ(fingerprint_of(call, 1, 2), (Fingerprint{.sequence = 1, .communicator = 2}));
  call.operation = coll::Operation::all_gather;
  EXPECT_EQ(
      fingerprint_of(call, 1, 2),
      (Fingerprint{
          .sequence = 1, .count = 7, .operation = call.operation, .dtype = DType::int64, .communicator = 2}));
  call.operation = coll::Operation::broadcast;
  EXPECT_EQ(fingerprint_of(call, 1, 2).root, 3);
  call.operation = coll::Operation::all_reduce;
  EXPECT_EQ(fingerprint_of(call, 1, 2).redop, RedOp::max);
}

TEST(Fingerprint, GroupsOfOtherNameOrSizeHaveOtherIds) {
  EXPECT_NE(communicator_id("a", 2), communicator_id("b", 2));
  EXPECT_NE(communicator_id("a", 2), communicator_id("a", 3));
}

}  // namespace
}  // namespace beeline::exec
