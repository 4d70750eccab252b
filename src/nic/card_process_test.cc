// The card among processes: killed peers leave nothing behind, forked children hold nothing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "nic/card_fixture.h"
#include "nic/key_table.h"
#include "nic/real_ports.h"
#include "port/udp/udp_port.h"

#if defined(__SANITIZE_THREAD__)
// Forking a process that has threads is what is tested here.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "die_after_fork=0";
}
#endif

namespace beeline::nic::test {
namespace {

using proto::PostResult;
using proto::WcStatus;
using proto::WrOpcode;

// --- Processes

// A child that dies with the test, and a line to it.
class Process {
 public:
  explicit Process(const std::function<int(int line)>& body) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    line_ = ends[0];
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      ::_exit(body(ends[1]));
    }
    ::close(ends[1]);
  }
  ~Process() {
    kill();
    ::close(line_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int line() const { return line_; }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  // Its exit status; -1 when it does not end in time, or is killed.
  int wait() {
    int status = 0;
    const bool ended = until([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; },
                             [] { std::this_thread::sleep_for(1ms); });
    if (!ended) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  int line_ = -1;
};

template <class T>
bool send_value(int line, const T& value) {
  return ::send(line, &value, sizeof value, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof value);
}
template <class T>
bool receive_value(int line, T& value) {
  pollfd ready{line, POLLIN, 0};
  return ::poll(&ready, 1, 60000) == 1 &&
         ::recv(line, &value, sizeof value, 0) == static_cast<ssize_t>(sizeof value);
}

// The test passes the addresses of two workers on to each other.
void introduce(Process& a, Process& b, std::set<int>* slots = nullptr) {
  EndAddress of_a, of_b;
  ASSERT_TRUE(receive_value(a.line(), of_a) && receive_value(b.line(), of_b)) << "a worker did not start";
  ASSERT_TRUE(send_value(a.line(), of_b) && send_value(b.line(), of_a));
  if (slots != nullptr)
    slots->insert({static_cast<int>(of_a.qpn.value >> 16), static_cast<int>(of_b.qpn.value >> 16)});
}

// Which lane the workers of a test use; set before they are forked.
Lane lane_of_workers = Lane::wire;

// The wire loses packets; shared memory does not.
std::unique_ptr<Card> open_card(const IpAddress& address, double loss, std::uint64_t seed) {
  const port::Interface interface = interface_with(address);
  auto port = port::make_udp_port();
  if (!port) return nullptr;
  Config config;
  config.lane = lane_of_workers;
  std::unique_ptr<port::Port> used = std::move(*port);
  if (config.lane == Lane::wire) used = std::make_unique<LossyPort>(std::move(used), loss, seed);
  auto card = Card::create(config, std::move(used), {&interface, 1});
  return card ? std::move(*card) : nullptr;
}

bool meet(End& end, int line) {
  EndAddress peer;
  if (!send_value(line, end.address()) || !receive_value(line, peer)) return false;
  end.connect(peer);
  return !::testing::Test::HasFailure();
}

// Sends and writes without end until an operation fails. Exit status 0: it failed as it must
// when the peer is gone.
int work_until_failure(const IpAddress& address, int line, std::uint64_t seed) {
  auto card = open_card(address, 0.02, seed);
  if (card == nullptr) return 10;
  EndOptions options;
  options.timeout = 9;  // 2 ms
  options.memory_bytes = 200000;
  End end(*card, options);
  for (std::uint64_t i = 0; i < 64; ++i) (void)end.receive(i, 100000, 10000);
  if (!meet(end, line)) return 11;
  std::size_t posted = 0, completed = 0;
  const bool ended = until([&] { return end.failed(); },
                           [&] {
                             if (posted - completed < 8) {
                               const auto opcode = posted % 2 == 0 ? WrOpcode::write : WrOpcode::send;
                               posted +=
                                   end.post(opcode, posted, 0, 1 + posted * 77 % 10000) == PostResult::ok;
                             }
                             end.poll();
                             for (const auto& c : end.done) {
                               if (c.status != WcStatus::success) return;
                               if (c.is_receive) (void)end.receive(c.wr_id, 100000, 10000);
                               completed += c.is_receive ? 0 : 1;
                             }
                             end.done.clear();
                           });
  if (!ended) return 12;
  // What was posted first and failed, failed for want of an answer; what follows is flushed.
  for (const auto& c : end.done)
    if (c.status != WcStatus::success)
      return c.status == WcStatus::retry_exceeded || c.status == WcStatus::flushed ? 0 : 13;
  return 14;
}

// --- What the system still knows

bool port_is_free(const IpAddress& address) {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(4791);
  std::memcpy(&name.sin_addr, address.bytes.data() + 12, 4);
  const bool free =
      ::bind(socket, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0;  // no SO_REUSEPORT: alone
  ::close(socket);
  return free;
}

bool slot_is_free(int slot) {
  std::ifstream table("/proc/net/unix");
  const std::string name = "@beeline.4791." + std::to_string(slot);
  for (std::string line; std::getline(table, line);)
    if (line.size() >= name.size() && line.compare(line.size() - name.size(), name.size(), name) == 0)
      return false;
  return true;
}

// UDP sockets on this address, on whatever port.
int udp_sockets_on(const IpAddress& address) {
  std::uint32_t raw = 0;
  std::memcpy(&raw, address.bytes.data() + 12, 4);
  char wanted[16];
  std::snprintf(wanted, sizeof wanted, " %08X:", raw);
  std::ifstream table("/proc/net/udp");
  int count = 0;
  for (std::string line; std::getline(table, line);) count += line.find(wanted) != std::string::npos ? 1 : 0;
  return count;
}

// Closing is finished when the last reference goes, which may be a moment after the death of a process.
void expect_nothing_left(const IpAddress& address, const std::set<int>& slots) {
  const auto pause = [] { std::this_thread::sleep_for(2ms); };
  EXPECT_TRUE(until([&] { return port_is_free(address); }, pause));
  EXPECT_TRUE(until([&] { return udp_sockets_on(address) == 0; }, pause));
  // Another program of this machine may take a slot at once; it will not keep all of them at every look.
  for (const int slot : slots)
    EXPECT_TRUE(until([&] { return slot_is_free(slot); }, pause)) << "slot " << slot;
}

// --- Tests

class CardProcesses : public ::testing::TestWithParam<Lane> {
 protected:
  void SetUp() override { lane_of_workers = GetParam(); }
  void TearDown() override { lane_of_workers = Lane::wire; }
};
INSTANTIATE_TEST_SUITE_P(, CardProcesses, ::testing::Values(Lane::wire, Lane::local),
                         [](const auto& lane) { return lane.param == Lane::wire ? "Wire" : "Local"; });

TEST_P(CardProcesses, KilledPeersLeaveNothingAndTheOthersNotice) {
  const char* full = std::getenv("BEELINE_TEST_FULL");
  const bool all = full != nullptr && *full == '1';
  const int rounds = all ? 200 : 20;
  if (all) std::printf("sample space: %d random kills under loss\n", rounds);
  const IpAddress address = own_address(3);
  Prng random(42);
  std::set<int> slots;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t seed = random.next();
    Process victim([&](int line) { return work_until_failure(address, line, seed); });
    Process survivor([&](int line) { return work_until_failure(address, line, seed + 1); });
    ASSERT_NO_FATAL_FAILURE(introduce(victim, survivor, &slots));
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(30000)));
    victim.kill();
    ASSERT_EQ(survivor.wait(), 0) << "round " << round << " of seed 42";
  }
  expect_nothing_left(address, slots);
}

// Datagrams, a shared receive queue, atomics, and a window that is bound and invalidated all the time;
// until it is killed, or the peer is.
int work_with_everything(const IpAddress& address, int line, std::uint64_t seed) {
  auto card = open_card(address, 0.02, seed);
  if (card == nullptr) return 10;
  EndOptions options;
  options.timeout = 9;  // 2 ms
  options.memory_bytes = 200000;
  options.access = full_access | proto::Access::window_bind;
  options.domain = value_of(card->create_domain());
  options.shared_queue = value_of(card->create_srq(*options.domain, 64, 1));
  End end(*card, options);
  EndOptions datagrams = options;
  datagrams.type = proto::QpType::ud;
  End broadcast(*card, datagrams);
  broadcast.open_for_datagrams();
  if (!meet(end, line)) return 11;
  const Key window = value_of(card->allocate_window(*options.domain, WindowType::type_1));
  AddressVector itself;
  itself.destination = address;
  const proto::DatagramTarget to{value_of(card->resolve_path(0, itself)), broadcast.address().qpn, End::qkey};
  std::uint64_t posted = 0;
  proto::WindowBind bind;
  bind.window = window;
  const bool ended = until([&] { return end.failed(); },
                           [&] {
                             const proto::Sge piece = end.sge(0, 4200);
                             (void)card->post_srq_recv(options.shared_queue, {1, {&piece, 1}});
                             (void)broadcast.send_datagram(1, 0, 100, to);
                             if (posted++ % 2 == 0) {
                               (void)end.post(WrOpcode::fetch_add, posted, 64, 8, 128);
                             } else {
                               bind.new_rkey = Key{bind.window.value + 1};
                               bind.region = end.keys().lkey;
                               bind.address = end.address_of(0);
                               bind.length = 100;
                               bind.access = static_cast<std::uint8_t>(proto::Access::remote_read);
                               proto::SendWr wr;
                               wr.opcode = WrOpcode::bind_mw;
                               wr.bind = &bind;
                               if (card->post_send(end.qp(), wr) == PostResult::ok)
                                 bind.window = KeyTable::variant(bind.window, bind.new_rkey);
                             }
                             end.poll();
                             broadcast.poll();
                             broadcast.done.clear();
                             if (!end.failed()) end.done.clear();
                           });
  succeeds(card->deallocate_window(window));
  if (!ended) return 12;
  for (const auto& c : end.done)
    if (c.status != WcStatus::success)
      return c.status == WcStatus::retry_exceeded || c.status == WcStatus::flushed
                 ? 0
                 : 100 + static_cast<int>(c.status);
  return 14;
}

TEST_P(CardProcesses, KilledInTheMiddleOfEverythingLeavesNothing) {
  const IpAddress address = own_address(7);
  Prng random(43);
  std::set<int> slots;
  for (int round = 0; round < 8; ++round) {
    const std::uint64_t seed = random.next();
    Process victim([&](int line) { return work_with_everything(address, line, seed); });
    Process survivor([&](int line) { return work_with_everything(address, line, seed + 1); });
    ASSERT_NO_FATAL_FAILURE(introduce(victim, survivor, &slots));
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(30000)));
    victim.kill();
    ASSERT_EQ(survivor.wait(), 0) << "round " << round << " of seed 43";
  }
  expect_nothing_left(address, slots);
}

TEST_P(CardProcesses, EightPairsAtOnce) {
  constexpr int pairs = 8;
  const IpAddress address = own_address(4);
  const auto worker = [&](int line) {
    auto card = open_card(address, 0, 0);
    if (card == nullptr) return 10;
    End end(*card, patient_options());
    if (!meet(end, line)) return 11;
    // Writes a pattern to the upper half of the peer, reads it back, and stays until the peer is done too.
    constexpr std::size_t bytes = 300000;
    end.fill(0, bytes, static_cast<std::uint32_t>(::getpid()));
    if (end.post(WrOpcode::write, 1, 0, bytes, 500000) != PostResult::ok) return 12;
    if (end.post(WrOpcode::read, 2, bytes + 1, 100000, 500000) != PostResult::ok) return 13;
    if (!until([&] { return end.done.size() == 2; }, [&] { end.poll(); })) return 14;
    if (end.failed()) return 100 + static_cast<int>(end.done[0].status);
    if (std::memcmp(end.memory().data(), end.memory().data() + bytes + 1, 100000) != 0) return 15;
    char word = 'd';
    return send_value(line, word) && receive_value(line, word) ? 0 : 16;
  };
  std::vector<std::unique_ptr<Process>> processes;
  processes.reserve(std::size_t{2} * pairs);
  for (int i = 0; i < 2 * pairs; ++i) processes.push_back(std::make_unique<Process>(worker));
  for (int i = 0; i < 2 * pairs; i += 2) ASSERT_NO_FATAL_FAILURE(introduce(*processes[i], *processes[i + 1]));
  char word = 0;
  for (auto& process : processes) EXPECT_TRUE(receive_value(process->line(), word));
  for (auto& process : processes) EXPECT_TRUE(send_value(process->line(), word));
  for (auto& process : processes) EXPECT_EQ(process->wait(), 0);
}

// As a DataLoader worker that outlives its killed parent. Without abandon_after_fork the child holds the
// port: that is what the first case shows.
TEST_P(CardProcesses, ForkedChildThatAbandonsTheCardDoesNotHoldThePort) {
  const IpAddress address = own_address(5);
  for (const bool abandons : {false, true}) {
    Process parent([&](int line) {
      auto card = open_card(address, 0, 0);
      if (card == nullptr) return 10;
      End end(*card);
      end.connect(end.address());  // with itself: opens the socket
      const pid_t child = ::fork();
      if (child == 0) {
        if (abandons) card->abandon_after_fork();
        char word = 'c';
        (void)send_value(line, word);
        (void)receive_value(line, word);  // until the test hangs up
        ::_exit(0);
      }
      for (;;) ::pause();
    });
    char word = 0;
    ASSERT_TRUE(receive_value(parent.line(), word));
    EXPECT_FALSE(port_is_free(address));
    parent.kill();
    if (abandons)
      EXPECT_TRUE(until([&] { return port_is_free(address); }, [] { std::this_thread::sleep_for(2ms); }));
    else
      EXPECT_FALSE(port_is_free(address));
    ASSERT_TRUE(send_value(parent.line(), word));
    EXPECT_TRUE(until([&] { return port_is_free(address); }, [] { std::this_thread::sleep_for(2ms); }));
  }
}

TEST_P(CardProcesses, ForkedChildMayOpenACardOfItsOwn) {
  const IpAddress address = own_address(6);
  // A queue pair that is connected to itself shares memory with nobody.
  if (GetParam() == Lane::local) lane_of_workers = Lane::automatic;
  Process parent([&](int) {
    auto card = open_card(address, 0, 0);
    if (card == nullptr) return 10;
    End end(*card, patient_options());
    end.connect(end.address());
    const pid_t child = ::fork();
    if (child == 0) {
      card->abandon_after_fork();
      auto anew = open_card(address, 0, 0);
      if (anew == nullptr) ::_exit(20);
      End own(*anew, patient_options());
      own.connect(own.address());
      if (own.post(WrOpcode::write, 1, 0, 5000, 10000) != PostResult::ok) ::_exit(21);
      const bool done = until([&] { return !own.done.empty(); }, [&] { own.poll(); });
      ::_exit(done && !own.failed() ? 0 : 22);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return WIFEXITED(status) ? WEXITSTATUS(status) : 23;
    // The parent's card has not noticed.
    if (end.post(WrOpcode::write, 1, 0, 5000, 10000) != PostResult::ok) return 24;
    return until([&] { return !end.done.empty(); }, [&] { end.poll(); }) && !end.failed() ? 0 : 25;
  });
  EXPECT_EQ(parent.wait(), 0);
}

// As a container's seccomp profile has it: EPERM for copying from other processes.
bool forbid_copying() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{4, program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// Large messages each way; the exit status says what went wrong.
int exchange_large(const IpAddress& address, int line, bool may_copy) {
  if (!may_copy && !forbid_copying()) return 9;
  auto card = open_card(address, 0, 0);
  if (card == nullptr) return 10;
  constexpr std::size_t bytes = 300'000;
  EndOptions options = patient_options();
  options.memory_bytes = 4 * bytes;
  End end(*card, options);
  end.fill(0, bytes, 1);
  if (!meet(end, line) || end.receive(1, 3 * bytes, bytes) != PostResult::ok) return 11;
  // Both fill the same way: a WRITE leaves the peer's second part as our first, and so on.
  if (end.post(WrOpcode::write, 2, 0, bytes, bytes) != PostResult::ok ||
      end.post(WrOpcode::read, 3, 2 * bytes, bytes, 0) != PostResult::ok ||
      end.post(WrOpcode::send, 4, 0, bytes) != PostResult::ok)
    return 12;
  if (!until([&] { return end.done.size() == 4; }, [&] { end.poll(); })) return 13;
  if (end.failed()) return 14;
  for (const std::size_t part : {1, 2, 3})
    if (std::memcmp(end.memory().data(), end.memory().data() + part * bytes, bytes) != 0) return 15;
  const CardCounters counters = card->counters();
  if (counters.wire_payload_sent + counters.wire_payload_received != 0) return 16;
  if (counters.local_payload_received < bytes) return 17;
  if ((counters.local_processes_direct != 0) != may_copy) return 18;
  char word = 'd';  // stay until the other is done, too
  return send_value(line, word) && receive_value(line, word) ? 0 : 19;
}

TEST(LocalLaneProcesses, LargeMessagesPassWithAndWithoutCopyingFromProcessToProcess) {
  const IpAddress address = own_address(8);
  lane_of_workers = Lane::local;
  for (const bool may_copy : {true, false}) {
    Process first([&](int line) { return exchange_large(address, line, may_copy); });
    Process second([&](int line) { return exchange_large(address, line, may_copy); });
    ASSERT_NO_FATAL_FAILURE(introduce(first, second));
    char word = 0;
    EXPECT_TRUE(receive_value(first.line(), word) && receive_value(second.line(), word));
    EXPECT_TRUE(send_value(first.line(), word) && send_value(second.line(), word));
    EXPECT_EQ(first.wait(), 0);
    EXPECT_EQ(second.wait(), 0);
  }
  lane_of_workers = Lane::wire;
}

}  // namespace
}  // namespace beeline::nic::test
