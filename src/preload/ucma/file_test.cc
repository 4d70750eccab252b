// The descriptor of an emulated device belongs to its program, who may do with it whatever it likes.
#include "preload/ucma/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptor.h"

namespace beeline::preload::ucma {
namespace {

bool readable(int descriptor) {
  pollfd shown{descriptor, POLLIN, 0};
  return ::poll(&shown, 1, 0) == 1 && shown.revents == POLLIN;
}

class FileTest : public testing::Test {
 protected:
  FileTest() : file_(O_CLOEXEC), descriptor_(file_.first_descriptor()) {}

  File file_;
  Descriptor descriptor_;
};

TEST_F(FileTest, IsReadableWhileThereAreEvents) {
  EXPECT_FALSE(readable(descriptor_.get()));
  file_.push({1, {}});
  file_.push({2, {}});
  EXPECT_TRUE(readable(descriptor_.get()));
  EXPECT_EQ(file_.pop()->counted_on, 1u);
  EXPECT_TRUE(readable(descriptor_.get()));
  EXPECT_EQ(file_.pop()->counted_on, 2u);
  EXPECT_FALSE(readable(descriptor_.get()));
  EXPECT_FALSE(file_.pop());
}

TEST_F(FileTest, WhoReadsTheDescriptorTakesNoEvent) {
  file_.push({1, {}});
  file_.push({2, {}});
  std::uint64_t units = 0;
  ASSERT_EQ(::read(descriptor_.get(), &units, sizeof units), 8);
  EXPECT_EQ(file_.pop()->counted_on, 1u);
  EXPECT_TRUE(readable(descriptor_.get())) << "there is another";
  EXPECT_EQ(file_.pop()->counted_on, 2u);
}

TEST_F(FileTest, WhoWritesToTheDescriptorMakesNoEventAndStopsNone) {
  const std::uint64_t most = UINT64_MAX - 1;  // nobody can add to that
  ASSERT_EQ(::write(descriptor_.get(), &most, sizeof most), 8);
  EXPECT_FALSE(file_.pop());
  EXPECT_FALSE(readable(descriptor_.get()));
  ASSERT_EQ(::write(descriptor_.get(), &most, sizeof most), 8);
  file_.push({1, {}});
  EXPECT_EQ(file_.pop()->counted_on, 1u);
  EXPECT_FALSE(readable(descriptor_.get()));
}

TEST_F(FileTest, WhoeverHasTheNumberNextIsLeftAlone) {
  const Descriptor other(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_TRUE(other);
  EXPECT_TRUE(is_event_descriptor(descriptor_.get()));
  ASSERT_GE(::dup2(other.get(), descriptor_.get()), 0);
  EXPECT_FALSE(is_event_descriptor(descriptor_.get()));
  file_.push({1, {}});
  struct stat status {};
  ASSERT_EQ(::fstat(other.get(), &status), 0);
  EXPECT_EQ(status.st_size, 0);
  EXPECT_EQ(file_.pop()->counted_on, 1u);
}

}  // namespace
}  // namespace beeline::preload::ucma
