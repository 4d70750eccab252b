// What an endpoint says when a queue pair fails.
#include "perf/endpoint.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verbs/fake/fake_provider.h"

namespace beeline::perf {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class EndpointFailure : public testing::Test {
 protected:
  // An endpoint on a device with that address, connected to itself.
  void connect(const Gid& gid) {
    verbs::FakeOptions fake;
    fake.devices[0].gids = {gid};
    provider_ = verbs::make_fake_provider(fake);
    Options options;
    options.test = find_test("write_bw");
    options.size_bytes = 64;
    auto device = open_device(*provider_, options);
    const auto plan = make_plan(options);
    ASSERT_TRUE(device && plan);
    device_ = std::move(*device);
    auto made = Endpoint::create(device_, *plan);
    ASSERT_TRUE(made) << made.error().message;
    end_ = std::move(*made);
    const auto connected = end_->connect(end_->info());
    ASSERT_TRUE(connected) << connected.error().message;
  }
  std::string what_it_says() const { return end_->failed(0, "RDMA WRITE", IBV_WC_RETRY_EXC_ERR).message; }

  std::unique_ptr<verbs::FakeProvider> provider_;
  OpenDevice device_;
  std::unique_ptr<Endpoint> end_;
};

TEST_F(EndpointFailure, NamesTheOperationBothEndsAndTheReason) {
  ASSERT_NO_FATAL_FAILURE(connect(Gid::v4(127, 0, 0, 1)));
  EXPECT_THAT(what_it_says(), HasSubstr("RDMA WRITE on queue pair 0 (127.0.0.1 QPN 0x"));
  EXPECT_THAT(what_it_says(), HasSubstr(verbs::describe(IBV_WC_RETRY_EXC_ERR)));
  EXPECT_THAT(what_it_says(), Not(HasSubstr("this host"))) << "its address is still there";
}

TEST_F(EndpointFailure, SaysNothingOfAnAddressThatWasNeverThisHosts) {
  ASSERT_NO_FATAL_FAILURE(connect(Gid::v4(192, 0, 2, 99)));
  EXPECT_THAT(what_it_says(), Not(HasSubstr("this host")));
}

// A network namespace of one's own has no addresses at all: what was there before is lost. Where a process
// may not have one, there is nothing to lose.
TEST_F(EndpointFailure, NamesAnAddressThatWasTakenAway) {
  const pid_t child = ::fork();
  if (child == 0) {
    connect(Gid::v4(127, 0, 0, 1));
    if (HasFailure()) ::_exit(2);
    const bool alone = ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    const bool said = what_it_says().ends_with(
        "; this host no longer has the address 127.0.0.1, which its connections use");
    ::_exit(alone == said ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace beeline::perf
