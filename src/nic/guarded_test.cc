#include "nic/guarded.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace beeline::nic {
namespace {

const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

// Three pages, the middle one of which can be taken away.
class Pages {
 public:
  Pages() {
    void* memory = ::mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    memory_ = static_cast<std::byte*>(memory);
    std::memset(memory_, 0x5A, 3 * page);
  }
  ~Pages() { ::munmap(memory_, 3 * page); }
  std::byte* data() { return memory_; }
  std::byte* middle() { return memory_ + page; }
  void unmap_middle() { ASSERT_EQ(::munmap(middle(), page), 0); }
  void protect_middle(int protection) { ASSERT_EQ(::mprotect(middle(), page, protection), 0); }

 private:
  std::byte* memory_ = nullptr;
};

wire::Icrc new_crc() {
  wire::IpUdp ip_udp;
  ip_udp.source = IpAddress::v4(10, 0, 0, 1);
  ip_udp.destination = IpAddress::v4(10, 0, 0, 2);
  wire::Icrc crc(ip_udp);
  crc.update_headers(std::array<std::byte, 12>{});
  return crc;
}

TEST(Guarded, AtomicsOfManyThreadsLoseNothing) {
  alignas(8) std::uint64_t counter = 0, ticket = 0;
  constexpr std::uint64_t rounds = 20000;
  const auto work = [&] {
    std::uint64_t before = 0;
    for (std::uint64_t i = 0; i < rounds; ++i) {
      ASSERT_TRUE(fetch_add_guarded(reinterpret_cast<std::byte*>(&counter), 1, before));
      std::uint64_t expected = 0;
      do {
        expected = before;
        ASSERT_TRUE(
            compare_swap_guarded(reinterpret_cast<std::byte*>(&ticket), expected, expected + 2, before));
      } while (before != expected);
    }
  };
  std::thread one(work), two(work);
  one.join();
  two.join();
  EXPECT_EQ(counter, 2 * rounds);
  EXPECT_EQ(ticket, 4 * rounds);
}

TEST(Guarded, AtomicsOnMemoryThatIsNotThereAreAFault) {
  const FaultHandlers handlers;
  Pages pages;
  std::uint64_t before = 0;
  for (const int protection : {PROT_NONE, PROT_READ}) {
    pages.protect_middle(protection);
    EXPECT_FALSE(fetch_add_guarded(pages.middle(), 1, before));
    EXPECT_FALSE(compare_swap_guarded(pages.middle() + 8, 0, 1, before));
  }
  pages.unmap_middle();
  EXPECT_FALSE(fetch_add_guarded(pages.middle(), 1, before));
  EXPECT_FALSE(compare_swap_guarded(pages.middle() + page - 8, 0, 1, before));
  EXPECT_TRUE(fetch_add_guarded(pages.data(), 1, before));
}

TEST(Guarded, CopiesEveryByteOfEverySize) {
  const FaultHandlers handlers;
  std::vector<std::byte> from(600), to(600);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (std::size_t bytes = 0; bytes <= 512; ++bytes) {
    std::fill(to.begin(), to.end(), std::byte{0});
    const std::size_t offset = bytes % 17;
    ASSERT_TRUE(copy_guarded(to.data() + offset, from.data() + 3, bytes));
    ASSERT_EQ(std::memcmp(to.data() + offset, from.data() + 3, bytes), 0) << bytes;
    ASSERT_EQ(to[offset + bytes], std::byte{0}) << "wrote behind " << bytes << " bytes";
  }
}

TEST(Guarded, CrcEqualsTheUnguardedOne) {
  const FaultHandlers handlers;
  const std::vector<std::byte> data(5000, std::byte{0x3C});
  wire::Icrc guarded = new_crc(), plain = new_crc();
  ASSERT_TRUE(crc_guarded(guarded, data));
  plain.update(data);
  EXPECT_EQ(guarded.value(), plain.value());
}

TEST(Guarded, UnmappedPageInTheMiddleIsAFaultInEveryFunction) {
  const FaultHandlers handlers;
  std::vector<std::byte> copy(3 * page);
  Pages pages;
  pages.unmap_middle();
  EXPECT_FALSE(copy_guarded(copy.data(), pages.data(), 3 * page));
  EXPECT_EQ(copy[page - 1], std::byte{0x5A}) << "the page before the hole was readable";
  EXPECT_FALSE(copy_guarded(pages.data(), copy.data(), 3 * page));
  wire::Icrc crc = new_crc();
  const std::uint32_t before = crc.value();
  EXPECT_FALSE(crc_guarded(crc, {pages.data(), 3 * page}));
  EXPECT_EQ(crc.value(), before);
  EXPECT_TRUE(crc_guarded(crc, {pages.data(), page})) << "works again after a fault";
}

TEST(Guarded, NoAccessProtectionIsAFault) {
  const FaultHandlers handlers;
  Pages pages;
  pages.protect_middle(PROT_NONE);
  std::byte byte{};
  EXPECT_FALSE(copy_guarded(&byte, pages.middle(), 1));
  EXPECT_FALSE(copy_guarded(pages.middle(), &byte, 1));
  wire::Icrc crc = new_crc();
  EXPECT_FALSE(crc_guarded(crc, {pages.middle(), 64}));
}

TEST(Guarded, ReadOnlyTargetIsAFaultAndKeepsItsContents) {
  const FaultHandlers handlers;
  Pages pages;
  pages.protect_middle(PROT_READ);
  const std::vector<std::byte> data(page, std::byte{1});
  EXPECT_FALSE(copy_guarded(pages.middle(), data.data(), data.size()));
  EXPECT_EQ(*pages.middle(), std::byte{0x5A});
  std::byte byte{};
  EXPECT_TRUE(copy_guarded(&byte, pages.middle(), 1)) << "reading it is allowed";
}

TEST(Guarded, TruncatedFileIsAFault) {
  const FaultHandlers handlers;
  char path[] = "/tmp/beeline-guarded-XXXXXX";
  const int file = ::mkstemp(path);
  ASSERT_GE(file, 0);
  ::unlink(path);
  ASSERT_EQ(::ftruncate(file, static_cast<off_t>(2 * page)), 0);
  void* mapped = ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  ASSERT_EQ(::ftruncate(file, static_cast<off_t>(page)), 0);  // the second page now raises SIGBUS
  auto* memory = static_cast<std::byte*>(mapped);
  std::vector<std::byte> copy(2 * page);
  EXPECT_FALSE(copy_guarded(copy.data(), memory, 2 * page));
  EXPECT_FALSE(copy_guarded(memory, copy.data(), 2 * page));
  wire::Icrc crc = new_crc();
  EXPECT_FALSE(crc_guarded(crc, {memory, 2 * page}));
  ::munmap(mapped, 2 * page);
  ::close(file);
}

TEST(Guarded, AddressesThatCannotExistAreFaults) {
  const FaultHandlers handlers;
  std::byte byte{};
  for (const std::uintptr_t address :
       {std::uintptr_t{8}, std::uintptr_t{0x8000'0000'0000'0000u} + 4096, ~std::uintptr_t{0} - 4096}) {
    auto* nowhere = reinterpret_cast<std::byte*>(address);
    EXPECT_FALSE(copy_guarded(&byte, nowhere, 1));
    EXPECT_FALSE(copy_guarded(nowhere, &byte, 1));
  }
}

TEST(Guarded, ThreadsFaultIndependently) {
  const FaultHandlers handlers;
  Pages broken, whole;
  broken.protect_middle(PROT_NONE);  // into a hole another thread's memory could be mapped
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<std::byte> copy(3 * page);
      for (int i = 0; i < 200; ++i) {
        const bool expect = (t + i) % 2 == 0;
        wire::Icrc crc = new_crc();
        std::byte* memory = (expect ? whole : broken).data();
        if (copy_guarded(copy.data(), memory, 3 * page) != expect) ++wrong;
        if (crc_guarded(crc, {memory, 3 * page}) != expect) ++wrong;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// --- Faults that are not ours

void exit_seven(int) { ::_exit(7); }
void exit_eight(int, siginfo_t*, void*) { ::_exit(8); }

void touch_nothing() {
  volatile std::uintptr_t address = 16;  // the compiler must not see that this is nowhere
  *reinterpret_cast<volatile int*>(address) = 1;
}

TEST(GuardedDeathTest, ForeignFaultReachesTheEarlierHandler) {
  EXPECT_EXIT(
      {
        std::signal(SIGSEGV, exit_seven);
        const FaultHandlers handlers;
        touch_nothing();
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(GuardedDeathTest, ForeignFaultWithoutEarlierHandlerKills) {
  EXPECT_EXIT(
      {
        std::signal(SIGSEGV, SIG_DFL);
        const FaultHandlers handlers;
        touch_nothing();
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

TEST(GuardedDeathTest, SentSignalIsNotTakenForAFault) {
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, SIG_DFL);
        const FaultHandlers handlers;
        ::kill(::getpid(), SIGBUS);
        ::pause();
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

void install(int signal, void (*handler)(int, siginfo_t*, void*), struct sigaction* before) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(signal, &action, before);
}

struct sigaction below_late_handler;
// As language runtimes do: not mine, so pass it to whoever was there before me.
void late_handler(int signal, siginfo_t* info, void* context) {
  below_late_handler.sa_sigaction(signal, info, context);
}

TEST(GuardedDeathTest, HandlerOnTopOfOursThatPassesOnMakesNoCircle) {
  EXPECT_EXIT(
      {
        std::signal(SIGSEGV, exit_seven);
        const FaultHandlers handlers;
        install(SIGSEGV, late_handler, &below_late_handler);
        FaultHandlers::ensure_on_top();
        Pages pages;
        pages.unmap_middle();
        std::byte byte{};
        if (copy_guarded(&byte, pages.middle(), 1)) ::_exit(1);  // ours still comes first
        touch_nothing();  // ours, the late one, ours again, the earlier one
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(GuardedDeathTest, HandlerInstalledLaterIsCalledForForeignFaults) {
  EXPECT_EXIT(
      {
        const FaultHandlers handlers;
        install(SIGSEGV, exit_eight, nullptr);
        FaultHandlers::ensure_on_top();
        touch_nothing();
      },
      ::testing::ExitedWithCode(8), "");
}

sigjmp_buf back;
void jump_back(int) { ::siglongjmp(back, 1); }

TEST(GuardedDeathTest, HandlerThatJumpsOutMayBeCalledAgain) {
  EXPECT_EXIT(
      {
        std::signal(SIGSEGV, jump_back);
        const FaultHandlers handlers;
        volatile int jumps = 0;
        while (jumps < 3)
          if (::sigsetjmp(back, 1) == 0)
            touch_nothing();
          else
            jumps = jumps + 1;
        ::_exit(9);
      },
      ::testing::ExitedWithCode(9), "");
}

TEST(Guarded, HandlersAreRestored) {
  struct sigaction before = {}, during = {}, after = {};
  ::sigaction(SIGSEGV, nullptr, &before);
  {
    const FaultHandlers outer;
    const FaultHandlers inner;
    ::sigaction(SIGSEGV, nullptr, &during);
  }
  ::sigaction(SIGSEGV, nullptr, &after);
  EXPECT_NE(reinterpret_cast<void*>(during.sa_sigaction), reinterpret_cast<void*>(before.sa_sigaction));
  EXPECT_EQ(reinterpret_cast<void*>(after.sa_sigaction), reinterpret_cast<void*>(before.sa_sigaction));
}

TEST(Guarded, HandlerInstalledOnTopIsLeftAlone) {
  struct sigaction before = {}, after = {};
  ::sigaction(SIGBUS, nullptr, &before);
  {
    const FaultHandlers handlers;
    install(SIGBUS, exit_eight, nullptr);
  }
  ::sigaction(SIGBUS, nullptr, &after);
  EXPECT_EQ(after.sa_sigaction, exit_eight);
  ::sigaction(SIGBUS, &before, nullptr);
}

}  // namespace
}  // namespace beeline::nic
