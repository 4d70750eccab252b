#include "nic/local/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace beeline::nic::local {
namespace {

constexpr std::size_t bytes = 8192;

Descriptor memory_file(std::size_t size, int seals) {
  Descriptor file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(size)), 0);
  EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

TEST(SharedMemoryOfALink, IsTheSameForBoth) {
  auto mine = SharedMemory::create("test", bytes);
  ASSERT_TRUE(mine) << mine.error().message;
  auto theirs = SharedMemory::adopt(Descriptor(::dup(mine->descriptor())), bytes);
  ASSERT_TRUE(theirs) << theirs.error().message;
  std::memcpy(mine->data(), "hello", 6);
  EXPECT_STREQ(static_cast<const char*>(theirs->data()), "hello");
  EXPECT_NE(::ftruncate(mine->descriptor(), 0), 0) << "it never shrinks";
}

TEST(SharedMemoryOfALink, IsRefusedWhenItCouldShrinkOrIsNotWhatWasAgreed) {
  EXPECT_TRUE(SharedMemory::adopt(memory_file(bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), bytes));
  EXPECT_FALSE(SharedMemory::adopt(memory_file(bytes, F_SEAL_GROW | F_SEAL_SEAL), bytes));
  EXPECT_FALSE(SharedMemory::adopt(memory_file(bytes, F_SEAL_SHRINK | F_SEAL_GROW), bytes));
  EXPECT_FALSE(SharedMemory::adopt(memory_file(bytes / 2, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), bytes));
  EXPECT_FALSE(SharedMemory::adopt(
      memory_file(bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_WRITE), bytes));
  EXPECT_FALSE(SharedMemory::adopt(Descriptor(::open("/dev/zero", O_RDWR | O_CLOEXEC)), bytes));
  EXPECT_FALSE(SharedMemory::adopt(Descriptor(), bytes));
}

}  // namespace
}  // namespace beeline::nic::local
