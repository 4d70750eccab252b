#include "nic/region_table.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <thread>

#include "base/random.h"
#include "nic/guarded.h"

namespace beeline::nic {
namespace {

using proto::Access;
using proto::MemoryStatus;

constexpr PdId domain{1};
constexpr Access everything = Access::local_write | Access::remote_write | Access::remote_read;

class RegionTableTest : public ::testing::Test {
 protected:
  Key add(Access access = everything, std::uint64_t iova = 0x1000) {
    const auto key = table_.add(domain, memory_.data(), memory_.size(), iova, access);
    EXPECT_TRUE(key.has_value());
    return *key;
  }
  FaultHandlers handlers_;
  RegionTable table_{1000, 1000};
  std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
};

TEST_F(RegionTableTest, WritesAndReadsAtTheIova) {
  const Key key = add();
  const std::array data{std::byte{1}, std::byte{2}, std::byte{3}};
  EXPECT_EQ(table_.write(domain, key, 0x1000 + 10, data, Access::remote_write), MemoryStatus::ok);
  EXPECT_EQ(memory_[9], std::byte{0});
  EXPECT_EQ(memory_[10], std::byte{1});
  EXPECT_EQ(memory_[12], std::byte{3});
  EXPECT_EQ(memory_[13], std::byte{0});
  std::array<std::byte, 2> out{};
  EXPECT_EQ(table_.read(domain, key, 0x1000 + 11, out, Access::remote_read), MemoryStatus::ok);
  EXPECT_EQ(out[0], std::byte{2});
  EXPECT_EQ(out[1], std::byte{3});
}

TEST_F(RegionTableTest, EveryWrongBoundIsSeen) {
  const Key key = add();
  const struct {
    std::uint64_t address, length;
    MemoryStatus status;
  } cases[] = {
      {0x1000, 4096, MemoryStatus::ok},
      {0x1FFF, 1, MemoryStatus::ok},
      {0x0FFF, 1, MemoryStatus::out_of_bounds},
      {0x1000, 4097, MemoryStatus::out_of_bounds},
      {0x2000, 1, MemoryStatus::out_of_bounds},
      {0x1001, 4096, MemoryStatus::out_of_bounds},
      {UINT64_MAX, 1, MemoryStatus::out_of_bounds},
      {UINT64_MAX, 2, MemoryStatus::out_of_bounds},       // wraps to 1
      {0x1001, UINT64_MAX, MemoryStatus::out_of_bounds},  // wraps to the start
      {0x1000, UINT64_MAX, MemoryStatus::out_of_bounds},
      {0, UINT64_MAX, MemoryStatus::out_of_bounds},
  };
  for (const auto& c : cases)
    EXPECT_EQ(table_.check(domain, key, c.address, c.length, Access::none), c.status)
        << std::hex << c.address << "+" << c.length;
}

TEST_F(RegionTableTest, RightsAreNeededOneByOne) {
  for (const Access have : {Access::none, Access::local_write, Access::remote_read,
                            Access::local_write | Access::remote_write, everything}) {
    const Key key = add(have);
    for (const Access need : {Access::local_write, Access::remote_write, Access::remote_read})
      EXPECT_EQ(table_.check(domain, key, 0x1000, 1, need) == MemoryStatus::ok, proto::allows(have, need));
    EXPECT_EQ(table_.check(domain, key, 0x1000, 1, Access::none), MemoryStatus::ok) << "local reads always";
  }
}

TEST_F(RegionTableTest, OtherDomainsAndUnknownKeysMiss) {
  const Key key = add();
  EXPECT_EQ(table_.check(PdId{2}, key, 0x1000, 1, Access::none), MemoryStatus::wrong_domain);
  EXPECT_EQ(table_.check(domain, Key{0}, 0x1000, 1, Access::none), MemoryStatus::bad_key);
  Prng random(1);
  for (int i = 0; i < 100000; ++i) {
    const Key guess{static_cast<std::uint32_t>(random.next())};
    if (guess != key) {
      ASSERT_EQ(table_.check(domain, guess, 0x1000, 1, Access::none), MemoryStatus::bad_key);
    }
  }
}

TEST_F(RegionTableTest, ZeroBytesNeedNoKey) {
  EXPECT_EQ(table_.check(domain, Key{77}, 5, 0, Access::remote_write), MemoryStatus::ok);
  EXPECT_EQ(table_.write(domain, Key{77}, 5, {}, Access::remote_write), MemoryStatus::ok);
  EXPECT_EQ(table_.read(domain, Key{77}, 5, {}, Access::remote_read), MemoryStatus::ok);
}

TEST_F(RegionTableTest, NonsenseIsRefused) {
  std::byte* memory = memory_.data();
  EXPECT_FALSE(table_.add(domain, memory, 0, 0, everything));
  EXPECT_FALSE(table_.add(domain, nullptr, 10, 0, everything));
  EXPECT_FALSE(table_.add(domain, memory, SIZE_MAX, 0, everything));
  EXPECT_FALSE(table_.add(domain, memory, 4096, UINT64_MAX - 100, everything));
  EXPECT_FALSE(table_.add(domain, memory, 4096, 0, Access::remote_write)) << "needs local write";
  EXPECT_FALSE(table_.add(domain, memory, 4096, 0, Access::remote_atomic)) << "needs local write";
  EXPECT_FALSE(table_.remove(Key{123}));
}

TEST_F(RegionTableTest, FullTableSaysSoAndKeysAreAllDifferent) {
  std::set<std::uint32_t> keys;
  for (int i = 0; i < 1000; ++i) keys.insert(add().value);
  EXPECT_EQ(keys.size(), 1000u);
  const auto one_more = table_.add(domain, memory_.data(), 1, 0, everything);
  ASSERT_FALSE(one_more);
  EXPECT_EQ(one_more.error().code, Errc::resource_exhausted);
  for (const auto key : keys) EXPECT_TRUE(table_.remove(Key{key}));
  EXPECT_EQ(table_.size(), 0u);
  EXPECT_TRUE(table_.add(domain, memory_.data(), 1, 0, everything)) << "places come back";
}

TEST_F(RegionTableTest, RemovedKeyMissesAtOnce) {
  const Key key = add();
  const auto removed = table_.remove(key);
  ASSERT_TRUE(removed);
  EXPECT_EQ(*removed, domain);
  EXPECT_EQ(table_.check(domain, key, 0x1000, 1, Access::none), MemoryStatus::bad_key);
  EXPECT_FALSE(table_.remove(key));
}

TEST_F(RegionTableTest, MemoryThatWentAwayIsAFault) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* memory = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const auto key = table_.add(domain, static_cast<std::byte*>(memory), page, 0, everything);
  ASSERT_TRUE(key);
  // Not unmapped: something else might be mapped there at once.
  ASSERT_EQ(::mprotect(memory, page, PROT_NONE), 0);
  std::array<std::byte, 8> bytes{};
  EXPECT_EQ(table_.write(domain, *key, 0, bytes, Access::remote_write), MemoryStatus::fault);
  EXPECT_EQ(table_.read(domain, *key, 0, bytes, Access::remote_read), MemoryStatus::fault);
  ::munmap(memory, page);
}

TEST_F(RegionTableTest, AZeroBasedRegionStartsAtZero) {
  const Key key = add(everything | Access::zero_based, 0x1000);
  EXPECT_EQ(table_.check(domain, key, 0, 4096, Access::remote_read), MemoryStatus::ok);
  EXPECT_EQ(table_.check(domain, key, 0x1000, 1, Access::remote_read), MemoryStatus::out_of_bounds);
}

TEST_F(RegionTableTest, ChangeKeepsTheKeyAndWhatIsNotNamed) {
  const Key key = add();
  std::vector<std::byte> other(100);
  EXPECT_EQ(table_.change(key, {.range = RegionChange::Range{other.data(), 100, 0x50}}).value(), domain);
  const std::array data{std::byte{9}};
  EXPECT_EQ(table_.write(domain, key, 0x50, data, Access::remote_write), MemoryStatus::ok);
  EXPECT_EQ(other[0], std::byte{9});
  EXPECT_EQ(table_.check(domain, key, 0x1000, 1, Access::none), MemoryStatus::out_of_bounds);

  EXPECT_EQ(table_.change(key, {.access = Access::remote_read}).value(), domain);
  EXPECT_EQ(table_.write(domain, key, 0x50, data, Access::remote_write), MemoryStatus::no_permission);
  EXPECT_EQ(table_.check(domain, key, 0x50, 100, Access::remote_read), MemoryStatus::ok);

  EXPECT_EQ(table_.change(key, {.domain = PdId{2}}).value(), domain);
  EXPECT_EQ(table_.check(domain, key, 0x50, 1, Access::none), MemoryStatus::wrong_domain);
  EXPECT_EQ(table_.change(key, {.domain = domain}).value(), PdId{2});

  for (const RegionChange& bad :
       {RegionChange{.access = Access::remote_write}, RegionChange{.access = Access::remote_atomic},
        RegionChange{.range = RegionChange::Range{other.data(), 0, 0}},
        RegionChange{.range = RegionChange::Range{nullptr, 10, 0}}})
    EXPECT_EQ(table_.change(key, bad).error().code, Errc::invalid_argument);
  EXPECT_EQ(table_.check(domain, key, 0x50, 100, Access::remote_read), MemoryStatus::ok) << "as it was";
  EXPECT_EQ(table_.change(Key{123}, {}).error().code, Errc::not_found);
}

TEST_F(RegionTableTest, ChangeWaitsForWhoeverIsInside) {
  const Key key = add();
  RegionUse inside;
  ASSERT_EQ(table_.enter(domain, key, 0x1000, 8, Access::none, inside), MemoryStatus::ok);
  std::atomic<bool> changed{false};
  std::thread changer([&] {
    EXPECT_TRUE(table_.change(key, {.access = Access::none}).has_value());
    changed = true;
  });
  while (table_.check(domain, key, 0x1000, 1, Access::none) == MemoryStatus::ok) std::this_thread::yield();
  EXPECT_FALSE(changed);
  EXPECT_EQ(table_.change(key, {}).error().code, Errc::in_use);
  EXPECT_EQ(table_.remove(key).error().code, Errc::in_use);
  inside.release();
  changer.join();
  EXPECT_EQ(table_.check(domain, key, 0x1000, 1, Access::none), MemoryStatus::ok);
}

TEST_F(RegionTableTest, AtomicsNeedTheirRightAndGiveWhatWasThere) {
  const Key key = add(Access::local_write | Access::remote_atomic);
  std::uint64_t before = 0, value = 5;
  const auto memory = [&] {
    std::memcpy(&value, memory_.data() + 8, sizeof value);
    return value;
  };
  std::memcpy(memory_.data() + 8, &value, sizeof value);
  using proto::AtomicOp;
  EXPECT_EQ(table_.atomic(domain, key, 0x1008, AtomicOp::fetch_add, 0, 7, before), MemoryStatus::ok);
  EXPECT_EQ(before, 5u);
  EXPECT_EQ(memory(), 12u);
  EXPECT_EQ(table_.atomic(domain, key, 0x1008, AtomicOp::compare_swap, 11, 99, before), MemoryStatus::ok);
  EXPECT_EQ(before, 12u);
  EXPECT_EQ(memory(), 12u) << "compared and found different";
  EXPECT_EQ(table_.atomic(domain, key, 0x1008, AtomicOp::compare_swap, 12, 99, before), MemoryStatus::ok);
  EXPECT_EQ(before, 12u);
  EXPECT_EQ(memory(), 99u);
  EXPECT_EQ(table_.atomic(domain, key, 0x1FF8, AtomicOp::fetch_add, 0, 1, before), MemoryStatus::ok);
  EXPECT_EQ(table_.atomic(domain, key, 0x1FFC, AtomicOp::fetch_add, 0, 1, before),
            MemoryStatus::out_of_bounds);
  EXPECT_EQ(table_.atomic(domain, key, UINT64_MAX - 3, AtomicOp::fetch_add, 0, 1, before),
            MemoryStatus::out_of_bounds);
  const Key without = add();
  EXPECT_EQ(table_.atomic(domain, without, 0x1008, AtomicOp::fetch_add, 0, 1, before),
            MemoryStatus::no_permission);
  const Key crooked =
      table_.add(domain, memory_.data() + 4, 64, 0x1000, Access::local_write | Access::remote_atomic).value();
  EXPECT_EQ(table_.atomic(domain, crooked, 0x1000, AtomicOp::fetch_add, 0, 1, before),
            MemoryStatus::no_permission)
      << "an aligned name for memory that is not";
}

TEST_F(RegionTableTest, NothingLandsAfterRemove) {
  std::atomic<std::uint32_t> current{0};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    const std::vector<std::byte> ones(memory_.size(), std::byte{1});
    while (!stop) (void)table_.write(domain, Key{current}, 0, ones, Access::remote_write);
  });
  for (int i = 0; i < 100; ++i) {
    const Key key = add(everything, 0);
    current = key.value;
    std::this_thread::yield();
    ASSERT_TRUE(table_.remove(key));
    std::fill(memory_.begin(), memory_.end(), std::byte{0});
    std::this_thread::yield();
    for (const std::byte b : memory_) ASSERT_EQ(b, std::byte{0}) << "round " << i;
  }
  stop = true;
  writer.join();
}

// Places are reused for other keys while look-ups are under way.
TEST_F(RegionTableTest, LookupsDuringReuseNeverReachTheWrongRegion) {
  std::atomic<std::uint32_t> first_key{add(Access::remote_read, 0x1000).value};
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread reader([&] {
    while (!stop) {
      // Keys that were given out for iova 0x1000 must never be answered with a region at 0x9000000.
      const auto status = table_.check(domain, Key{first_key}, 0x9000000, 1, Access::none);
      if (status == MemoryStatus::ok) ++wrong;
    }
  });
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(table_.remove(Key{first_key}));
    const Key other = add(Access::remote_read, 0x9000000);
    ASSERT_TRUE(table_.remove(other));
    first_key = add(Access::remote_read, 0x1000).value;
  }
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace beeline::nic
