#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <set>
#include <thread>

#include "nic/guarded.h"
#include "nic/region_table.h"

namespace beeline::nic {
namespace {

using proto::Access;
using proto::MemoryStatus;
using proto::WindowBind;

constexpr PdId domain{1}, other_domain{2};
constexpr Qpn mine{0x10100}, yours{0x10200};
constexpr std::uint64_t iova = 0x10000;

std::uint8_t bits(Access access) { return static_cast<std::uint8_t>(access); }
Key next(Key key) { return KeyTable::variant(key, Key{key.value + 1}); }

class WindowsTest : public ::testing::Test {
 protected:
  Key add_region(Access access = Access::local_write | Access::window_bind) {
    return table_.add(domain, memory_.data(), memory_.size(), iova, access).value();
  }
  Key add_window(WindowType type = WindowType::type_2) { return table_.add_window(domain, type).value(); }
  // The middle half of the region, with all rights.
  WindowBind middle(Key window) const {
    WindowBind bind;
    bind.window = window;
    bind.new_rkey = next(window);
    bind.region = region_;
    bind.address = iova + 1024;
    bind.length = 2048;
    bind.access = bits(Access::remote_write | Access::remote_read);
    return bind;
  }
  Key bound(WindowType type = WindowType::type_2, Qpn by = mine) {
    const Key window = add_window(type);
    EXPECT_EQ(table_.bind(domain, by, middle(window)), MemoryStatus::ok);
    return next(window);
  }
  MemoryStatus write(Key key, std::uint64_t address, std::size_t bytes = 8) {
    const std::vector<std::byte> data(bytes, std::byte{0x5A});
    return table_.write(domain, key, address, data, Access::remote_write);
  }

  FaultHandlers handlers_;
  RegionTable table_{100, 100};
  std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
  Key region_ = add_region();
};

TEST_F(WindowsTest, OpensExactlyWhatWasBound) {
  for (const WindowType type : {WindowType::type_1, WindowType::type_2}) {
    const Key key = bound(type);
    EXPECT_EQ(write(key, iova + 1024), MemoryStatus::ok);
    EXPECT_EQ(write(key, iova + 1024, 2048), MemoryStatus::ok);
    EXPECT_EQ(memory_[1024], std::byte{0x5A});
    EXPECT_EQ(memory_[1023], std::byte{0});
    EXPECT_EQ(write(key, iova + 1023), MemoryStatus::out_of_bounds);
    EXPECT_EQ(write(key, iova + 1024, 2049), MemoryStatus::out_of_bounds);
    EXPECT_EQ(write(key, iova + 3071, 2), MemoryStatus::out_of_bounds);
    EXPECT_EQ(write(key, UINT64_MAX, 2), MemoryStatus::out_of_bounds);
    EXPECT_EQ(table_.check(other_domain, key, iova + 1024, 8, Access::remote_read),
              MemoryStatus::wrong_domain);
    EXPECT_EQ(table_.check(domain, key, iova + 1024, 8, Access::remote_atomic), MemoryStatus::no_permission);
  }
}

TEST_F(WindowsTest, IsNoLocalKey) {
  const Key key = bound();
  EXPECT_EQ(table_.check(domain, key, iova + 1024, 8, Access::none), MemoryStatus::bad_key);
  EXPECT_NE(table_.check(domain, key, iova + 1024, 8, Access::local_write), MemoryStatus::ok);
}

TEST_F(WindowsTest, ZeroBasedCountsFromItsStart) {
  WindowBind bind = middle(add_window());
  bind.access |= bits(Access::zero_based);
  ASSERT_EQ(table_.bind(domain, mine, bind), MemoryStatus::ok);
  EXPECT_EQ(write(bind.new_rkey, 0), MemoryStatus::ok);
  EXPECT_EQ(memory_[1024], std::byte{0x5A});
  EXPECT_EQ(write(bind.new_rkey, 2047, 1), MemoryStatus::ok);
  EXPECT_EQ(write(bind.new_rkey, 2047, 2), MemoryStatus::out_of_bounds);
  EXPECT_EQ(write(bind.new_rkey, iova + 1024), MemoryStatus::out_of_bounds);

  bind = middle(add_window(WindowType::type_1));
  bind.access |= bits(Access::zero_based);
  EXPECT_NE(table_.bind(domain, mine, bind), MemoryStatus::ok) << "type 1 has none";
}

TEST_F(WindowsTest, BeforeBindingTheKeyIsGoodForNothing) {
  for (const WindowType type : {WindowType::type_1, WindowType::type_2}) {
    const Key window = add_window(type);
    EXPECT_EQ(table_.check(domain, window, iova, 1, Access::remote_read), MemoryStatus::bad_key);
    ASSERT_EQ(table_.bind(domain, mine, middle(window)), MemoryStatus::ok);
    EXPECT_EQ(table_.check(domain, window, iova + 1024, 1, Access::remote_read), MemoryStatus::bad_key)
        << "the key from before binding";
    EXPECT_EQ(table_.check(domain, next(window), iova + 1024, 1, Access::remote_read), MemoryStatus::ok);
  }
}

TEST_F(WindowsTest, Type1MovesWhenBoundAgain) {
  const Key first = bound(WindowType::type_1);
  WindowBind bind = middle(first);
  bind.address = iova;
  bind.length = 16;
  ASSERT_EQ(table_.bind(domain, yours, bind), MemoryStatus::ok) << "any queue pair of the domain";
  EXPECT_EQ(write(first, iova + 1024), MemoryStatus::bad_key);
  EXPECT_EQ(write(next(first), iova), MemoryStatus::ok);
  EXPECT_EQ(write(next(first), iova + 16), MemoryStatus::out_of_bounds);

  bind = middle(first);
  bind.new_rkey = next(next(first));
  EXPECT_EQ(table_.bind(domain, mine, bind), MemoryStatus::ok) << "by its first name";
  bind = middle(next(next(first)));
  bind.new_rkey = bind.window;
  EXPECT_EQ(table_.bind(domain, mine, bind), MemoryStatus::bad_key) << "without a new key";
  EXPECT_EQ(table_.invalidate(domain, mine, next(next(first))), MemoryStatus::no_permission);
  EXPECT_EQ(table_.check_user(next(next(first)), yours), MemoryStatus::ok);

  bind = middle(next(next(first)));
  bind.length = 0;
  bind.region = Key{};
  EXPECT_EQ(table_.bind(domain, mine, bind), MemoryStatus::ok) << "to nothing";
  EXPECT_EQ(write(bind.new_rkey, iova + 1024), MemoryStatus::bad_key);
  EXPECT_TRUE(table_.remove(region_).has_value()) << "nothing holds it any more";
}

TEST_F(WindowsTest, Type2ServesTheQueuePairThatBoundIt) {
  const Key key = bound();
  EXPECT_EQ(table_.check_user(key, mine), MemoryStatus::ok);
  EXPECT_EQ(table_.check_user(key, yours), MemoryStatus::no_permission);
  EXPECT_EQ(table_.check_user(region_, yours), MemoryStatus::ok);
  EXPECT_EQ(table_.bind(domain, mine, middle(key)), MemoryStatus::no_permission) << "while it is bound";

  EXPECT_EQ(table_.invalidate(domain, yours, key), MemoryStatus::no_permission);
  EXPECT_EQ(table_.invalidate(other_domain, mine, key), MemoryStatus::wrong_domain);
  EXPECT_EQ(write(key, iova + 1024), MemoryStatus::ok) << "nothing of that harmed it";
  EXPECT_EQ(table_.invalidate(domain, mine, key), MemoryStatus::ok);
  EXPECT_EQ(write(key, iova + 1024), MemoryStatus::bad_key);
  EXPECT_EQ(table_.check_user(key, mine), MemoryStatus::bad_key);
  EXPECT_EQ(table_.invalidate(domain, mine, key), MemoryStatus::bad_key) << "once";

  WindowBind bind = middle(key);
  bind.new_rkey = Key{0xFFFFFF42};  // only its lower 8 bits count
  ASSERT_EQ(table_.bind(domain, yours, bind), MemoryStatus::ok);
  const Key now = KeyTable::variant(key, bind.new_rkey);
  EXPECT_EQ(now.value, (key.value & 0xFFFFFF00) | 0x42);
  EXPECT_EQ(table_.check_user(now, yours), MemoryStatus::ok);
  EXPECT_EQ(table_.check_user(now, mine), MemoryStatus::no_permission);
}

TEST_F(WindowsTest, OnlyWindowsAreInvalidated) {
  EXPECT_EQ(table_.invalidate(domain, mine, region_), MemoryStatus::no_permission);
  EXPECT_EQ(table_.invalidate(domain, mine, Key{}), MemoryStatus::bad_key);
  EXPECT_EQ(table_.check(domain, region_, iova, 8, Access::local_write), MemoryStatus::ok);
}

TEST_F(WindowsTest, EveryReasonToRefuseABind) {
  const Key window = add_window();
  const auto refused = [&](auto change) {
    WindowBind bind = middle(window);
    change(bind);
    return table_.bind(domain, mine, bind);
  };
  const Key no_bind = add_region(Access::local_write);
  const Key read_only = add_region(Access::window_bind);
  const Key foreign =
      table_.add(other_domain, memory_.data(), 4096, iova, Access::window_bind | Access::local_write).value();
  EXPECT_EQ(refused([](WindowBind& b) { b.window = Key{12345}; }), MemoryStatus::bad_key);
  EXPECT_EQ(refused([&](WindowBind& b) { b.window = region_; }), MemoryStatus::bad_key);
  EXPECT_EQ(refused([](WindowBind& b) { b.region = Key{12345}; }), MemoryStatus::bad_key);
  EXPECT_EQ(refused([&](WindowBind& b) { b.region = window; }), MemoryStatus::bad_key);
  EXPECT_EQ(refused([&](WindowBind& b) { b.region = foreign; }), MemoryStatus::wrong_domain);
  EXPECT_EQ(refused([&](WindowBind& b) { b.region = no_bind; }), MemoryStatus::no_permission);
  EXPECT_EQ(refused([&](WindowBind& b) { b.region = read_only; }), MemoryStatus::no_permission);
  EXPECT_EQ(refused([](WindowBind& b) { b.access = bits(Access::local_write); }),
            MemoryStatus::no_permission);
  EXPECT_EQ(refused([](WindowBind& b) { b.access = 0x80; }), MemoryStatus::no_permission);
  EXPECT_EQ(refused([](WindowBind& b) { b.address = iova - 1; }), MemoryStatus::out_of_bounds);
  EXPECT_EQ(refused([](WindowBind& b) { b.length = 4096; }), MemoryStatus::out_of_bounds);
  EXPECT_EQ(refused([](WindowBind& b) { b.length = UINT64_MAX; }), MemoryStatus::out_of_bounds);
  EXPECT_EQ(refused([](WindowBind& b) { b.address = UINT64_MAX; }), MemoryStatus::out_of_bounds);
  EXPECT_EQ(refused([](WindowBind& b) { b.length = 0; }), MemoryStatus::no_permission) << "type 2";
  EXPECT_EQ(table_.bind(other_domain, mine, middle(window)), MemoryStatus::wrong_domain);

  WindowBind readable = middle(window);
  readable.region = read_only;
  readable.access = bits(Access::remote_read);
  EXPECT_EQ(table_.bind(domain, mine, readable), MemoryStatus::ok);
}

TEST_F(WindowsTest, ARegionWithWindowsStays) {
  const Key key = bound();
  EXPECT_EQ(table_.remove(region_).error().code, Errc::in_use);
  EXPECT_EQ(table_.change(region_, {.access = Access::none}).error().code, Errc::in_use);
  EXPECT_EQ(write(key, iova + 1024), MemoryStatus::ok);
  ASSERT_EQ(table_.invalidate(domain, mine, key), MemoryStatus::ok);
  EXPECT_TRUE(table_.remove(region_).has_value());
  EXPECT_EQ(table_.bind(domain, mine, middle(key)), MemoryStatus::bad_key) << "to a region that is gone";
}

TEST_F(WindowsTest, DeallocatingUnbindsByAnyKeyOfTheWindow) {
  const Key window = add_window();
  ASSERT_EQ(table_.bind(domain, mine, middle(window)), MemoryStatus::ok);
  EXPECT_EQ(table_.remove_window(window).value(), domain);
  EXPECT_EQ(write(next(window), iova + 1024), MemoryStatus::bad_key);
  EXPECT_TRUE(table_.remove(region_).has_value());
  EXPECT_EQ(table_.remove_window(window).error().code, Errc::not_found);
  EXPECT_EQ(table_.remove_window(region_).error().code, Errc::not_found);
}

TEST_F(WindowsTest, AQueuePairTakesItsBindingsWithIt) {
  const Key of_mine = bound(WindowType::type_2, mine), of_yours = bound(WindowType::type_2, yours);
  const Key of_all = bound(WindowType::type_1, mine);
  table_.unbind_windows_of(mine);
  EXPECT_EQ(write(of_mine, iova + 1024), MemoryStatus::bad_key);
  EXPECT_EQ(write(of_yours, iova + 1024), MemoryStatus::ok);
  EXPECT_EQ(write(of_all, iova + 1024), MemoryStatus::ok);
}

TEST_F(WindowsTest, NoTwoShareAFamily) {
  RegionTable table(2000, 2000);
  std::set<std::uint32_t> families;
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(families.insert(table.add_window(domain, WindowType::type_1).value().value >> 8).second);
    const Key key = table.add(domain, memory_.data(), 1, 0, Access::none).value();
    ASSERT_TRUE(families.insert(key.value >> 8).second);
  }
  EXPECT_EQ(table.add_window(domain, WindowType::type_2).error().code, Errc::resource_exhausted);
  EXPECT_EQ(table.add(domain, memory_.data(), 1, 0, Access::none).error().code, Errc::resource_exhausted);
}

// A batch of outgoing packets keeps what it read by a window; invalidating that window must not wait for
// it, since the same thread may do both.
TEST_F(WindowsTest, InvalidatingWaitsForNoPacketOnItsWayOut) {
  const Key key = bound();
  RegionUse leaving;
  ASSERT_EQ(table_.enter(domain, key, iova + 1024, 2048, Access::remote_read, leaving), MemoryStatus::ok);
  EXPECT_EQ(leaving.bytes(), memory_.data() + 1024);
  ASSERT_EQ(table_.invalidate(domain, mine, key), MemoryStatus::ok);

  std::atomic<bool> removed{false};
  std::thread remover([&] {
    EXPECT_TRUE(table_.remove(region_).has_value());
    removed = true;
  });
  while (table_.check(domain, region_, iova, 1, Access::none) == MemoryStatus::ok) std::this_thread::yield();
  EXPECT_TRUE(table_.add_window(domain, WindowType::type_2).has_value()) << "the table is not held meanwhile";
  EXPECT_FALSE(removed) << "but the region waits";
  leaving.release();
  remover.join();
}

// Bytes that come after invalidate() returned are in nobody's memory any more.
TEST_F(WindowsTest, NothingLandsAfterInvalidateUnderTraffic) {
  std::atomic<bool> stop{false};
  std::atomic<std::uint32_t> current{0};
  std::atomic<int> landed{0};
  std::thread writer([&] {
    const std::vector<std::byte> data(512, std::byte{0x77});
    while (!stop) {
      const Key key{current.load()};
      if (table_.check_user(key, mine) == MemoryStatus::ok &&
          table_.write(domain, key, iova + 1024, data, Access::remote_write) == MemoryStatus::ok)
        ++landed;
    }
  });
  Key window = add_window();
  for (int round = 0; round < 300 || landed < 100; ++round) {
    ASSERT_EQ(table_.bind(domain, mine, middle(window)), MemoryStatus::ok);
    window = next(window);
    const int before = landed;
    current = window.value;
    for (int i = 0; i < 1000 && landed == before; ++i) std::this_thread::yield();
    ASSERT_EQ(table_.invalidate(domain, mine, window), MemoryStatus::ok);
    std::fill(memory_.begin() + 1024, memory_.begin() + 1536, std::byte{0});
    std::this_thread::yield();
    ASSERT_TRUE(std::all_of(memory_.begin() + 1024, memory_.begin() + 1536,
                            [](std::byte b) { return b == std::byte{0}; }));
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace beeline::nic
