#include "bench/job.h"

#include <gmock/gmock.h>

namespace beeline::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Sizes, AreReadAsNcclTestsReadsThem) {
  EXPECT_EQ(*parse_size("0"), 0u);
  EXPECT_EQ(*parse_size("1000"), 1000u);
  EXPECT_EQ(*parse_size("8K"), 8u << 10);
  EXPECT_EQ(*parse_size("8k"), 8u << 10);
  EXPECT_EQ(*parse_size("64M"), 64u << 20);
  EXPECT_EQ(*parse_size("2G"), 2ull << 30);
}

TEST(Sizes, NonsenseIsNamed) {
  for (const char* text : {"", "K", "1T", "-1", "1.5M", "8KB", " 8", "99999999999999999999",
                           "18446744073709551615", "9999999999999G"}) {
    const auto size = parse_size(text);
    ASSERT_FALSE(size.has_value()) << text;
    EXPECT_THAT(size.error().message, HasSubstr(std::string("'") + text + "'"));
  }
}

TEST(Sizes, GrowByTheFactor) {
  EXPECT_THAT(*size_steps(8, 64, 2), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(*size_steps(8, 100, 4), ElementsAre(8, 32));
  EXPECT_THAT(*size_steps(64, 64, 0), ElementsAre(64));
  EXPECT_THAT(*size_steps(0, 0, 2), ElementsAre(0));
  EXPECT_EQ(size_steps(std::size_t{1} << 62, ~std::size_t{0}, 2)->size(), 2u);  // no overflow
  EXPECT_FALSE(size_steps(8, 4, 2).has_value());
  EXPECT_FALSE(size_steps(8, 16, 1).has_value());
  EXPECT_FALSE(size_steps(0, 16, 2).has_value());
}

TEST(Shapes, TheSizeIsThatOfTheLargerBuffer) {
  Job job{Operation::all_reduce, BEELINE_FLOAT32, BEELINE_SUM, 0, 4};
  Shape shape = shape_for(job, 1024);
  EXPECT_EQ(shape.count, 256u);
  EXPECT_EQ(shape.send_elements, 256u);
  EXPECT_EQ(shape.receive_elements, 256u);
  EXPECT_EQ(shape.bytes, 1024u);
  job.operation = Operation::all_gather;
  shape = shape_for(job, 1030);
  EXPECT_EQ(shape.count, 64u);
  EXPECT_EQ(shape.send_elements, 64u);
  EXPECT_EQ(shape.receive_elements, 256u);
  EXPECT_EQ(shape.bytes, 1024u);
  job.operation = Operation::reduce_scatter;
  shape = shape_for(job, 1024);
  EXPECT_EQ(shape.count, 64u);
  EXPECT_EQ(shape.send_elements, 256u);
  EXPECT_EQ(shape.receive_elements, 64u);
  job.operation = Operation::broadcast;
  EXPECT_EQ(shape_for(job, 1024).count, 256u);
}

TEST(Bandwidth, FollowsNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::broadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_reduce, 1), 0);
  const Job job{Operation::all_reduce, BEELINE_FLOAT32, BEELINE_SUM, 0, 4};
  EXPECT_DOUBLE_EQ(bandwidth(job, 1'000'000, 1000).algbw_GBps, 1);
  EXPECT_DOUBLE_EQ(bandwidth(job, 1'000'000, 1000).busbw_GBps, 1.5);
  EXPECT_DOUBLE_EQ(bandwidth(job, 1'000'000, 0).algbw_GBps, 0);
}

TEST(Names, AreThoseOfNcclTests) {
  EXPECT_EQ(name(BEELINE_FLOAT32), "float");
  EXPECT_EQ(*parse_dtype("float32"), BEELINE_FLOAT32);
  EXPECT_EQ(*parse_redop("avg"), BEELINE_AVG);
  EXPECT_EQ(*parse_operation("broadcast"), Operation::broadcast);
  EXPECT_THAT(parse_dtype("half").error().message, HasSubstr("there are: float, "));
}

}  // namespace
}  // namespace beeline::bench
