#include "base/unknown_variables.h"

#include <gtest/gtest.h>

namespace beeline {
namespace {

TEST(UnknownVariables, AreNamedWithWhatWasMeant) {
  const auto unknown =
      unknown_variables({"HOME=/", "BEELINE_TIMOUT=3", "BEELINE_TIMEOUT=3", "BEELINE_COLOUR=red"});
  ASSERT_EQ(unknown.size(), 2u);
  EXPECT_EQ(unknown[0].name, "BEELINE_TIMOUT");
  EXPECT_EQ(unknown[0].warning,
            "there is no variable BEELINE_TIMOUT, so it changes nothing; did you mean BEELINE_TIMEOUT?");
  EXPECT_EQ(unknown[1].warning, "there is no variable BEELINE_COLOUR, so it changes nothing");
}

TEST(UnknownVariables, AreNotThoseOfScriptsAndTests) {
  EXPECT_TRUE(
      unknown_variables({"BEELINE_TEST_FULL=1", "BEELINE_BUILD=/x", "BEELINE_LANE=wire", "beeline_x=1"})
          .empty());
}

}  // namespace
}  // namespace beeline
