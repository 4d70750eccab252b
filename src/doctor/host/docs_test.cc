// docs/doctor.md holds the registry's table as it is.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "doctor/host/report.h"
#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

TEST(Documentation, HoldsTheTableOfChecks) {
  std::ifstream file(BEELINE_DOCS "/doctor.md");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  ASSERT_FALSE(text.empty());
  EXPECT_TRUE(contains(text, checks_as_markdown())) << "put this table into docs/doctor.md:\n"
                                                    << checks_as_markdown();
}

}  // namespace
}  // namespace beeline::doctor
