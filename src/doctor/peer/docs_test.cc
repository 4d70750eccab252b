#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "doctor/peer/checks.h"

namespace beeline::doctor::peer {
namespace {

TEST(PeerDocs, DoctorMdListsThePeerChecks) {
  std::ifstream file(BEELINE_DOCS "/doctor.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(peer_checks_as_markdown()), std::string::npos)
      << "docs/doctor.md should have this table:\n"
      << peer_checks_as_markdown();
}

}  // namespace
}  // namespace beeline::doctor::peer
