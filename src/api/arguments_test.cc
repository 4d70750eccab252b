#include "api/arguments.h"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

namespace beeline::api {
namespace {

using coll::Operation;
using ::testing::HasSubstr;

std::vector<float> memory(100);

exec::Call call_of(Operation operation, const float* send, float* receive, std::size_t count) {
  exec::Call call;
  call.operation = operation;
  call.send = send;
  call.receive = receive;
  call.count = count;
  call.dtype = exec::DType::float32;
  return call;
}

// Rank 2 of 4.
Result<void> check(Operation operation, const float* send, float* receive, std::size_t count) {
  return check_call(call_of(operation, send, receive, count), Rank{2}, 4);
}

TEST(Arguments, BuffersApartAreFine) {
  float* at = memory.data();
  EXPECT_TRUE(check(Operation::all_reduce, at, at + 10, 10).has_value());
  EXPECT_TRUE(check(Operation::all_reduce, at + 10, at, 10).has_value());
  EXPECT_TRUE(check(Operation::reduce_scatter, at, at + 40, 10).has_value());
  EXPECT_TRUE(check(Operation::all_gather, at + 40, at, 10).has_value());
  EXPECT_TRUE(check(Operation::broadcast, at, at + 10, 10).has_value());
}

TEST(Arguments, BuffersInPlaceAreFine) {
  float* at = memory.data();
  EXPECT_TRUE(check(Operation::all_reduce, at, at, 10).has_value());
  EXPECT_TRUE(check(Operation::broadcast, at, at, 10).has_value());
  EXPECT_TRUE(check(Operation::reduce_scatter, at, at + 20, 10).has_value());
  EXPECT_TRUE(check(Operation::all_gather, at + 20, at, 10).has_value());
}

TEST(Arguments, BuffersThatOverlapOtherwiseAreRefused) {
  float* at = memory.data();
  EXPECT_FALSE(check(Operation::all_reduce, at, at + 9, 10).has_value());
  EXPECT_FALSE(check(Operation::all_reduce, at + 9, at, 10).has_value());
  EXPECT_FALSE(check(Operation::reduce_scatter, at, at, 10).has_value())
      << "that is rank 0's block, this is rank 2";
  EXPECT_FALSE(check(Operation::reduce_scatter, at, at + 39, 10).has_value());
  EXPECT_FALSE(check(Operation::all_gather, at, at, 10).has_value());
  EXPECT_THAT(check(Operation::all_gather, at + 39, at, 10).error().message, HasSubstr("overlap"));
}

TEST(Arguments, OnlyTheRootsSendBufferMattersToBroadcast) {
  float* at = memory.data();
  EXPECT_TRUE(check(Operation::broadcast, nullptr, at, 10).has_value());
  auto call = call_of(Operation::broadcast, nullptr, at, 10);
  call.root = Rank{2};
  EXPECT_THAT(check_call(call, Rank{2}, 4).error().message, HasSubstr("send buffer is NULL"));
}

TEST(Arguments, NullIsFineForNothingOnly) {
  for (const auto operation :
       {Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather, Operation::broadcast}) {
    EXPECT_TRUE(check(operation, nullptr, nullptr, 0).has_value());
    EXPECT_THAT(check(operation, memory.data(), nullptr, 1).error().message,
                HasSubstr("receive buffer is NULL"));
  }
  EXPECT_THAT(check(Operation::all_reduce, nullptr, memory.data(), 1).error().message,
              HasSubstr("send buffer is NULL"));
}

TEST(Arguments, CountsThatCannotBeAreRefused) {
  for (const std::size_t count :
       {static_cast<std::size_t>(-1), SIZE_MAX / 4, SIZE_MAX / 16 + 1, SIZE_MAX / 32 + 1})
    EXPECT_THAT(check(Operation::all_gather, memory.data(), memory.data() + 50, count).error().message,
                HasSubstr("does not fit into memory"))
        << count;
}

TEST(Arguments, ARootOutsideTheGroupIsRefused) {
  for (const int root : {-1, 4}) {
    auto call = call_of(Operation::broadcast, memory.data(), memory.data(), 1);
    call.root = Rank{root};
    EXPECT_THAT(check_call(call, Rank{2}, 4).error().message,
                HasSubstr(fmt::format("root {} is outside", root)));
  }
}

TEST(Arguments, EnumsAreChecked) {
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(checked_dtype(static_cast<beeline_dtype>(i)).has_value());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(checked_redop(static_cast<beeline_redop>(i)).has_value());
  EXPECT_FALSE(checked_dtype(static_cast<beeline_dtype>(5)).has_value());
  EXPECT_FALSE(checked_redop(static_cast<beeline_redop>(3)).has_value());
}

TEST(Arguments, TimesAreChecked) {
  EXPECT_EQ(*checked_seconds("t", 0, 5s), 5s);
  EXPECT_EQ(*checked_seconds("t", 1.5, 5s), 1500ms);
  for (const double bad : {-1.0, std::nan(""), HUGE_VAL, 1e9})
    EXPECT_FALSE(checked_seconds("t", bad, 5s).has_value());
}

}  // namespace
}  // namespace beeline::api
