// The public API as programs use it: ranks as threads of this process, and as processes of
// their own where one has to die.
#include <beeline/beeline.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

// The child of a fork starts threads: ThreadSanitizer allows that only when told so.
// The name is reserved because the sanitizer's runtime looks for it.
extern "C" const char* __tsan_default_options();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Destroy {
  void operator()(beeline_comm* comm) const { beeline_comm_destroy(comm); }
};
using Comm = std::unique_ptr<beeline_comm, Destroy>;

// Free, and kept from others while it lives: bound, not listening.
class MeetingPoint {
 public:
  MeetingPoint() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    text_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~MeetingPoint() { ::close(fd_); }
  const char* text() const { return text_.c_str(); }

 private:
  int fd_;
  std::string text_;
};

beeline_comm_options options_for(int rank, int size, const char* rendezvous) {
  beeline_comm_options options;
  beeline_comm_options_init(&options);
  options.rank = rank;
  options.size = size;
  options.rendezvous = rendezvous;
  options.timeout_seconds = 60;
  return options;
}

Comm join(int rank, int size, const MeetingPoint& point) {
  const auto options = options_for(rank, size, point.text());
  beeline_comm* comm = nullptr;
  EXPECT_EQ(beeline_comm_create(&options, &comm), BEELINE_OK) << beeline_last_error();
  return Comm(comm);
}

void in_parallel(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) threads.emplace_back(body, r);
  for (auto& thread : threads) thread.join();
}

// Each rank in a thread, with its communicator.
void as_group(int ranks, const std::function<void(int, beeline_comm*)>& body) {
  const MeetingPoint point;
  in_parallel(ranks, [&](int r) {
    const Comm comm = join(r, ranks, point);
    ASSERT_NE(comm, nullptr);
    body(r, comm.get());
  });
}

TEST(Api, EveryCollectiveGivesEveryRankItsResult) {
  constexpr int ranks = 3;
  as_group(ranks, [](int rank, beeline_comm* comm) {
    constexpr std::size_t count = 1000;
    std::vector<std::int32_t> in(count * ranks), out(count * ranks, -1);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::int32_t>(i) * (rank + 1);
    ASSERT_EQ(beeline_all_reduce(comm, in.data(), out.data(), in.size(), BEELINE_INT32, BEELINE_SUM, nullptr),
              BEELINE_OK)
        << beeline_last_error();
    for (std::size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], static_cast<std::int32_t>(i) * 6);
    ASSERT_EQ(beeline_reduce_scatter(comm, in.data(), out.data(), count, BEELINE_INT32, BEELINE_MAX, nullptr),
              BEELINE_OK);
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(out[i], static_cast<std::int32_t>(i + static_cast<std::size_t>(rank) * count) * 3);
    ASSERT_EQ(beeline_all_gather(comm, in.data(), out.data(), count, BEELINE_INT32, nullptr), BEELINE_OK);
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], static_cast<std::int32_t>(i % count) * static_cast<std::int32_t>(i / count + 1));
    ASSERT_EQ(beeline_broadcast(comm, rank == 1 ? in.data() : nullptr, out.data(), in.size(), BEELINE_INT32,
                                1, nullptr),
              BEELINE_OK);
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], static_cast<std::int32_t>(i) * 2);
    ASSERT_EQ(beeline_barrier(comm, nullptr), BEELINE_OK);
    beeline_comm_stats stats{};
    stats.struct_bytes = sizeof stats;
    ASSERT_EQ(beeline_comm_get_stats(comm, &stats), BEELINE_OK);
    EXPECT_EQ(stats.operations, 5u);
    EXPECT_GT(stats.bytes_sent, 0u);
    EXPECT_NE(stats.device[0], '\0');
  });
}

TEST(Api, WorkRunsBesideTheCaller) {
  as_group(2, [](int, beeline_comm* comm) {
    std::vector<float> a(5000, 1), b(7000, 2);
    beeline_work *first = nullptr, *second = nullptr;
    ASSERT_EQ(beeline_all_reduce(comm, a.data(), a.data(), a.size(), BEELINE_FLOAT32, BEELINE_SUM, &first),
              BEELINE_OK);
    ASSERT_EQ(beeline_all_reduce(comm, b.data(), b.data(), b.size(), BEELINE_FLOAT32, BEELINE_AVG, &second),
              BEELINE_OK);
    std::atomic<int> calls{0};
    const beeline_done_fn count = [](void* user, beeline_status status, const char* message) {
      EXPECT_EQ(status, BEELINE_OK);
      EXPECT_STREQ(message, "");
      ++*static_cast<std::atomic<int>*>(user);
    };
    EXPECT_EQ(beeline_work_on_done(second, count, &calls), BEELINE_OK);
    EXPECT_EQ(beeline_work_on_done(second, count, &calls), BEELINE_INVALID_ARGUMENT) << "one per work";
    EXPECT_EQ(beeline_work_wait(second, 0), BEELINE_OK) << beeline_last_error();
    int done = 0;
    EXPECT_EQ(beeline_work_test(first, &done), BEELINE_OK);
    EXPECT_EQ(done, 1) << "operations end in the order of the calls";
    EXPECT_EQ(a.back(), 2.0f);
    EXPECT_EQ(b.back(), 2.0f);
    const auto patience = std::chrono::steady_clock::now() + 30s;
    while (calls == 0 && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
    EXPECT_EQ(calls, 1);
    beeline_work_free(first);
    beeline_work_free(second);
  });
}

TEST(Api, DestroyWaitsForWhatIsUnderWay) {
  const MeetingPoint point;
  std::vector<std::vector<float>> data(2, std::vector<float>(100000, 1));
  in_parallel(2, [&](int r) {
    Comm comm = join(r, 2, point);
    ASSERT_NE(comm, nullptr);
    auto& mine = data[static_cast<std::size_t>(r)];
    beeline_work* work = nullptr;
    ASSERT_EQ(beeline_all_reduce(comm.get(), mine.data(), mine.data(), mine.size(), BEELINE_FLOAT32,
                                 BEELINE_SUM, &work),
              BEELINE_OK);
    beeline_work_free(work);
    comm.reset();
    EXPECT_EQ(mine.back(), 2.0f);
  });
}

TEST(Api, RanksThatCallDifferentThingsAllHearOfBoth) {
  as_group(2, [](int rank, beeline_comm* comm) {
    std::vector<float> data(10, 1);
    const std::size_t count = rank == 0 ? 10 : 9;
    EXPECT_EQ(
        beeline_all_reduce(comm, data.data(), data.data(), count, BEELINE_FLOAT32, BEELINE_SUM, nullptr),
        BEELINE_MISMATCH);
    const std::string first = beeline_last_error();
    EXPECT_THAT(first, AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"), HasSubstr("10"), HasSubstr("9")));
    EXPECT_EQ(beeline_barrier(comm, nullptr), BEELINE_MISMATCH) << "a later call fails with the same cause";
    EXPECT_THAT(beeline_last_error(), HasSubstr("10"));
  });
}

TEST(Api, AbortEndsAllRanksWithTheReason) {
  as_group(3, [](int rank, beeline_comm* comm) {
    if (rank == 2) return beeline_comm_abort(comm, "the loss is NaN");
    EXPECT_EQ(beeline_barrier(comm, nullptr), BEELINE_ABORTED);
    EXPECT_THAT(beeline_last_error(), HasSubstr("the loss is NaN"));
  });
}

TEST(Api, ARankThatNeverComesIsNamed) {
  const MeetingPoint point;
  auto options = options_for(0, 3, point.text());
  options.connect_timeout_seconds = 0.3;
  beeline_comm* comm = nullptr;
  EXPECT_EQ(beeline_comm_create(&options, &comm), BEELINE_TIMED_OUT);
  EXPECT_EQ(comm, nullptr);
  EXPECT_THAT(beeline_last_error(), HasSubstr("ranks 1, 2 of 3 did not come"));
}

TEST(Api, AnUnknownDeviceIsNamedOnEveryRank) {
  const MeetingPoint point;
  in_parallel(2, [&](int r) {
    auto options = options_for(r, 2, point.text());
    if (r == 1) options.device = "bee77";
    beeline_comm* comm = nullptr;
    EXPECT_NE(beeline_comm_create(&options, &comm), BEELINE_OK);
    EXPECT_THAT(beeline_last_error(), HasSubstr("bee77"));
    if (r == 0) {
      EXPECT_THAT(beeline_last_error(), HasSubstr("rank 1 (pid "));
    }
  });
}

TEST(Api, OptionsAreChecked) {
  beeline_comm* comm = nullptr;
  beeline_comm_options options{};
  EXPECT_EQ(beeline_comm_create(&options, &comm), BEELINE_INVALID_ARGUMENT);
  EXPECT_THAT(beeline_last_error(), HasSubstr("beeline_comm_options_init"));
  options = options_for(2, 2, "127.0.0.1:29500");
  EXPECT_EQ(beeline_comm_create(&options, &comm), BEELINE_INVALID_ARGUMENT);
  EXPECT_THAT(beeline_last_error(), HasSubstr("rank 2 of 2"));
  options = options_for(0, 2, "nowhere");
  EXPECT_EQ(beeline_comm_create(&options, &comm), BEELINE_INVALID_ARGUMENT);
  options = options_for(0, 2, "127.0.0.1:29500");
  options.timeout_seconds = -1;
  EXPECT_EQ(beeline_comm_create(&options, &comm), BEELINE_INVALID_ARGUMENT);
  const beeline_store store{};
  options = options_for(0, 2, nullptr);
  options.store = &store;
  EXPECT_EQ(beeline_comm_create(&options, &comm), BEELINE_INVALID_ARGUMENT);
  EXPECT_EQ(beeline_comm_create(&options, nullptr), BEELINE_INVALID_ARGUMENT);
  EXPECT_EQ(comm, nullptr);
}

TEST(Api, NullHandlesAreRefusedNotDereferenced) {
  int done = 0;
  EXPECT_EQ(beeline_barrier(nullptr, nullptr), BEELINE_INVALID_ARGUMENT);
  EXPECT_EQ(beeline_work_wait(nullptr, 0), BEELINE_INVALID_ARGUMENT);
  EXPECT_EQ(beeline_work_test(nullptr, &done), BEELINE_INVALID_ARGUMENT);
  EXPECT_EQ(beeline_work_on_done(nullptr, nullptr, nullptr), BEELINE_INVALID_ARGUMENT);
  EXPECT_EQ(beeline_comm_get_stats(nullptr, nullptr), BEELINE_INVALID_ARGUMENT);
  EXPECT_EQ(beeline_comm_rank(nullptr), -1);
  EXPECT_EQ(beeline_comm_size(nullptr), 0);
  EXPECT_EQ(beeline_dtype_bytes(static_cast<beeline_dtype>(7)), 0u);
  beeline_comm_abort(nullptr, nullptr);
  beeline_comm_options_init(nullptr);
}

// A store as PyTorch's: set and a get that waits.
struct SharedStore {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;

  beeline_store interface() { return {this, &SharedStore::set, &SharedStore::get}; }
  static int set(void* user, const char* key, const void* value, size_t bytes) {
    auto* self = static_cast<SharedStore*>(user);
    const std::lock_guard lock(self->mutex);
    self->values[key] = std::string(static_cast<const char*>(value), bytes);
    self->changed.notify_all();
    return 0;
  }
  static int get(void* user, const char* key, void* out, size_t capacity, size_t* bytes,
                 uint64_t timeout_ms) {
    auto* self = static_cast<SharedStore*>(user);
    std::unique_lock lock(self->mutex);
    if (!self->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                [&] { return self->values.count(key) > 0; }))
      return 1;
    const std::string& value = self->values[key];
    *bytes = value.size();
    value.copy(static_cast<char*>(out), capacity);
    return 0;
  }
};

TEST(Api, MeetsThroughTheCallersStore) {
  SharedStore store;
  const beeline_store interface = store.interface();
  in_parallel(2, [&](int r) {
    auto options = options_for(r, 2, nullptr);
    options.store = &interface;
    beeline_comm* comm = nullptr;
    ASSERT_EQ(beeline_comm_create(&options, &comm), BEELINE_OK) << beeline_last_error();
    EXPECT_EQ(beeline_barrier(comm, nullptr), BEELINE_OK) << beeline_last_error();
    beeline_comm_destroy(comm);
  });
}

TEST(Api, AStoreThatFailsIsAnErrorAtOnce) {
  const beeline_store broken{nullptr, [](void*, const char*, const void*, size_t) { return 0; },
                             [](void*, const char*, void*, size_t, size_t*, uint64_t) { return 1; }};
  auto options = options_for(1, 2, nullptr);
  options.store = &broken;
  beeline_comm* comm = nullptr;
  EXPECT_EQ(beeline_comm_create(&options, &comm), BEELINE_IO);
  EXPECT_THAT(beeline_last_error(), HasSubstr("the caller's store"));
}

// A child process that runs `body` and exits with what it returns.
class ChildProcess {
 public:
  explicit ChildProcess(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(body());
  }
  ~ChildProcess() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

 private:
  pid_t pid_;
};

TEST(Api, AKilledRankIsNamedWithinFiveSeconds) {
  const MeetingPoint point;
  ChildProcess victim([&] {
    const auto options = options_for(1, 2, point.text());
    beeline_comm* comm = nullptr;
    if (beeline_comm_create(&options, &comm) != BEELINE_OK) return 1;
    std::this_thread::sleep_for(10min);
    return 0;
  });
  const Comm comm = join(0, 2, point);
  ASSERT_NE(comm, nullptr);
  beeline_work* work = nullptr;
  std::vector<float> data(1000, 1);
  ASSERT_EQ(beeline_all_reduce(comm.get(), data.data(), data.data(), data.size(), BEELINE_FLOAT32,
                               BEELINE_SUM, &work),
            BEELINE_OK);
  ::kill(victim.pid(), SIGKILL);
  EXPECT_EQ(beeline_work_wait(work, 5), BEELINE_PEER_LOST);
  EXPECT_THAT(beeline_last_error(), HasSubstr("rank 1 (pid " + std::to_string(victim.pid())));
  beeline_work_free(work);
}

TEST(Api, AForkedChildStartsAnewAndLeavesItsParentAlone) {
  as_group(1, [](int, beeline_comm* comm) {
    ChildProcess child([&] {
      if (beeline_barrier(comm, nullptr) != BEELINE_INVALID_ARGUMENT) return 1;  // the parent's
      beeline_comm_destroy(comm);
      const auto options = options_for(0, 1, "127.0.0.1:1");
      beeline_comm* own = nullptr;
      if (beeline_comm_create(&options, &own) != BEELINE_OK) return 2;
      if (beeline_barrier(own, nullptr) != BEELINE_OK) return 3;
      beeline_comm_destroy(own);
      return 0;
    });
    EXPECT_EQ(child.wait(), 0);
    EXPECT_EQ(beeline_barrier(comm, nullptr), BEELINE_OK) << beeline_last_error();
  });
}

// Ends what has been orphaned to us; false when one of them did not end by itself in time.
bool orphans_end(std::chrono::seconds patience) {
  const auto give_up = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < give_up) {
    if (::waitpid(-1, nullptr, WNOHANG) < 0) return true;  // none left
    std::this_thread::sleep_for(5ms);
  }
  std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  for (pid_t pid = 0; children >> pid;) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
  return false;
}

TEST(Api, AForkedChildThatOutlivesItsParentDoesNotHideTheDeath) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const MeetingPoint point;
  int lifeline[2];
  ASSERT_EQ(::pipe(lifeline), 0);
  ChildProcess victim([&] {
    ::close(lifeline[1]);
    const auto options = options_for(1, 2, point.text());
    beeline_comm* comm = nullptr;
    if (beeline_comm_create(&options, &comm) != BEELINE_OK) return 1;
    if (::fork() == 0) {  // a DataLoader worker: lives as long as the test
      char nothing = 0;
      ::_exit(static_cast<int>(::read(lifeline[0], &nothing, 1)));
    }
    (void)beeline_barrier(comm, nullptr);
    std::this_thread::sleep_for(10min);
    return 0;
  });
  const Comm comm = join(0, 2, point);
  ASSERT_NE(comm, nullptr);
  ASSERT_EQ(beeline_barrier(comm.get(), nullptr), BEELINE_OK) << beeline_last_error();
  ::kill(victim.pid(), SIGKILL);
  beeline_work* work = nullptr;
  if (beeline_barrier(comm.get(), &work) == BEELINE_OK) {
    EXPECT_EQ(beeline_work_wait(work, 5), BEELINE_PEER_LOST) << beeline_last_error();
  }
  beeline_work_free(work);
  ::close(lifeline[0]);
  ::close(lifeline[1]);
  (void)victim.wait();
  EXPECT_TRUE(orphans_end(20s)) << "the child hangs";
}

}  // namespace
