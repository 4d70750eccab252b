#include "verbs/own_address.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace beeline::verbs {
namespace {

TEST(OwnAddress, ThatIsStillThereExplainsNothing) { EXPECT_EQ(OwnAddress(Gid::v4(127, 0, 0, 1)).loss(), ""); }

TEST(OwnAddress, ThatWasNeverSeenHereExplainsNothing) {
  EXPECT_EQ(OwnAddress(Gid::v4(192, 0, 2, 99)).loss(), "");
  EXPECT_EQ(OwnAddress(*parse_address("2001:db8::99")).loss(), "");
}

// A network namespace of one's own has no addresses at all: what was seen before is lost there. Where a
// process may not have one, there is nothing to lose.
TEST(OwnAddress, ThatIsTakenAwayIsNamed) {
  const pid_t child = ::fork();
  if (child == 0) {
    const OwnAddress address(Gid::v4(127, 0, 0, 1));
    const bool alone = ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    const std::string loss = address.loss();
    ::_exit(alone == (loss == "this host no longer has the address 127.0.0.1, which its connections use")
                ? 0
                : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace beeline::verbs
