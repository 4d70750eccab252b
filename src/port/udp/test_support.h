// What the tests of this folder share: addresses of their own, strangers, and other
// processes with a port.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "port/udp/slot.h"
#include "port/udp/socket_address.h"
#include "port/udp/udp_port.h"

namespace beeline::port::test {

inline constexpr Duration patience = 30s;  // how long anything may take before a test fails

// All of 127/8 is this host: an address that only this test uses, so that other
// programs on the machine do not join its reuseport group.
inline IpAddress own_address(std::uint8_t number) {
  const auto pid = static_cast<std::uint32_t>(::getpid());
  return IpAddress::v4(127, static_cast<std::uint8_t>(100 + pid / 65536 % 100),
                       static_cast<std::uint8_t>(pid / 256),
                       static_cast<std::uint8_t>(number + pid % 16 * 16));
}

// Plain unless a test says otherwise, so that steering and hand-over are tested as root, too.
inline std::unique_ptr<Port> open_port(const IpAddress& address, IcrcCheck icrc = IcrcCheck::plain) {
  auto port = make_udp_port(icrc);
  EXPECT_TRUE(port.has_value()) << (port ? "" : port.error().message);
  if (!port) return nullptr;
  const auto opened = (*port)->open_address(address);
  EXPECT_TRUE(opened.has_value()) << (opened ? "" : opened.error().message);
  return std::move(*port);
}

// A datagram that looks like RoCE v2 enough for the port: opcode, slot, a number.
using Packet = std::array<std::byte, 32>;
inline Packet packet_for(Slot slot, std::uint32_t number = 0) {
  Packet packet{};
  store_u8(packet.data(), 0x04);  // RC SEND only
  store_u8(packet.data() + 5, slot.value);
  store_be32(packet.data() + 16, number);
  return packet;
}

// A plain socket, as a peer elsewhere has it.
class Stranger {
 public:
  explicit Stranger(const IpAddress& from)
      : socket_(::socket(from.is_v4() ? AF_INET : AF_INET6, SOCK_DGRAM, 0)) {
    SocketAddress name;
    const socklen_t length = fill(name, from, 0, 0);
    EXPECT_EQ(::bind(socket_.get(), &name.any, length), 0);
  }
  void set(int level, int option, int value) {
    EXPECT_EQ(::setsockopt(socket_.get(), level, option, &value, sizeof value), 0);
  }
  void send(const IpAddress& to, Bytes bytes) {
    SocketAddress name;
    const socklen_t length = fill(name, to, roce_port, 0);
    EXPECT_EQ(::sendto(socket_.get(), bytes.data(), bytes.size(), 0, &name.any, length),
              static_cast<ssize_t>(bytes.size()));
  }
  int get() const { return socket_.get(); }

 private:
  Descriptor socket_;
};

using Contents = std::vector<std::byte>;
struct Copy {
  InPacket packet;
  Contents bytes;
};

// Receives until there are `count` packets or patience ends.
inline std::vector<Copy> receive_copies(Port& port, std::size_t count) {
  std::vector<Copy> copies;
  std::array<InPacket, 32> out;
  const TimePoint end = port.now() + patience;
  while (copies.size() < count && port.now() < end) {
    const std::size_t filled = port.receive(out);
    for (std::size_t i = 0; i < filled; ++i)
      copies.push_back({out[i], Contents(out[i].bytes.begin(), out[i].bytes.end())});
    if (filled == 0) port.wait(std::min(end, port.now() + 20ms));
  }
  return copies;
}

// Receives until `done`, or patience ends; true when done.
inline bool pump_until(Port& port, const std::function<bool()>& done) {
  std::array<InPacket, 32> out;
  const TimePoint end = port.now() + patience;
  while (!done()) {
    if (port.now() >= end) return false;
    if (port.receive(out) == 0) port.wait(port.now() + 5ms);
  }
  return true;
}

// Has the port look at everything, so often.
inline void pump(Port& port, int times) {
  std::array<InPacket, 32> out;
  for (; times > 0; --times) {
    port.wait(port.now());  // after a wait, receive() looks at the hand-over channel, too
    port.receive(out);
  }
}

inline std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* directory = ::opendir("/proc/self/fd");
  EXPECT_NE(directory, nullptr) << "no descriptor is left to look with";
  if (directory == nullptr) return 0;
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

// The process that took the slot; 0: it is free. (Not who holds the socket by now.)
inline pid_t slot_owner(Slot slot) {
  const Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const SlotName name(slot);
  ucred owner{};
  socklen_t length = sizeof owner;
  if (::connect(socket.get(), name.get(), name.length) != 0 ||
      ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &owner, &length) != 0)
    return 0;
  return owner.pid;
}

// True when no socket at all is on that address's port.
inline bool port_is_free(const IpAddress& address) {
  const Descriptor socket(::socket(address.is_v4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  SocketAddress name;
  const socklen_t length = fill(name, address, roce_port, 0);
  return ::bind(socket.get(), &name.any, length) == 0;
}

// Another process that owns a port on an address and keeps receiving until it is told
// otherwise, or its parent dies. Fork happens in the constructor: make these before threads.
class PeerProcess {
 public:
  struct Report {
    Slot slot;
    std::uint64_t mine = 0, not_mine = 0;  // packets for its slot; for other slots
    PortCounters counters;
  };
  enum class Order : char { report = 'r', quit = 'q', fork_and_abandon = 'a', fork_and_keep = 'k' };

  explicit PeerProcess(const IpAddress& address, IcrcCheck icrc = IcrcCheck::plain) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    control_ = Descriptor(ends[0]);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      run(address, icrc, ends[1]);
      ::_exit(0);
    }
    ::close(ends[1]);
    slot_ = read_report().slot;
  }
  ~PeerProcess() { kill(); }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  Slot slot() const { return slot_; }
  pid_t pid() const { return pid_; }
  Report report() { return order(Order::report); }
  Report order(Order order) {
    EXPECT_EQ(::send(control_.get(), &order, 1, MSG_NOSIGNAL), 1);
    return read_report();
  }
  void kill() { end(SIGKILL); }
  void quit() {
    const Order order = Order::quit;
    ::send(control_.get(), &order, 1, MSG_NOSIGNAL);
    end(0);
  }
  // Closes the line to it and to the processes it forked; those end then.
  void hang_up() { control_.reset(); }
  void stop() { ::kill(pid_, SIGSTOP); }
  void go_on() { ::kill(pid_, SIGCONT); }

 private:
  void end(int signal) {
    if (pid_ <= 0) return;
    if (signal != 0) ::kill(pid_, signal);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  Report read_report() {
    Report report;
    pollfd ready{control_.get(), POLLIN, 0};
    const bool there = ::poll(&ready, 1, static_cast<int>(patience / 1ms)) == 1 &&
                       ::recv(control_.get(), &report, sizeof report, 0) == sizeof report;
    EXPECT_TRUE(there) << "the other process says nothing";
    return report;
  }

  static void run(const IpAddress& address, IcrcCheck icrc, int control) {
    auto port = make_udp_port(icrc);
    if (!port || !(*port)->open_address(address)) ::_exit(1);
    Report report;
    report.slot = (*port)->slot();
    ::send(control, &report, sizeof report, MSG_NOSIGNAL);
    while (obey(**port, control, report)) {
      std::array<InPacket, 32> out;
      const std::size_t filled = (*port)->receive(out);
      for (std::size_t i = 0; i < filled; ++i) {
        const bool mine = out[i].bytes.size() > 5 && load_u8(out[i].bytes.data() + 5) == report.slot.value &&
                          out[i].destination == address;
        ++(mine ? report.mine : report.not_mine);
      }
      if (filled > 0) continue;
      pollfd both[2] = {{control, POLLIN, 0}, {(*port)->wait_descriptor(), POLLIN, 0}};
      ::poll(both, 2,
             20);  // wait() would know when the port has something to do; it does not watch `control`
      (*port)->wait((*port)->now());
    }
  }

  // False when it is time to go.
  static bool obey(Port& port, int control, Report& report) {
    Order order{};
    const ssize_t got = ::recv(control, &order, 1, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return true;
    if (got != 1 || order == Order::quit) return false;
    if (order != Order::report && ::fork() == 0) outlive(port, control, order);
    report.counters = port.counters();
    if (order == Order::report) return ::send(control, &report, sizeof report, MSG_NOSIGNAL) > 0;
    return true;
  }

  // A child of the process that outlives it, as a DataLoader worker does.
  [[noreturn]] static void outlive(Port& port, int control, Order order) {
    if (order == Order::fork_and_abandon) port.abandon_after_fork();
    const Report report;
    ::send(control, &report, sizeof report, MSG_NOSIGNAL);
    pollfd parent{control, 0, 0};
    ::poll(&parent, 1, static_cast<int>(2 * patience / 1ms));  // until the test hangs up
    ::_exit(0);
  }

  Descriptor control_;
  pid_t pid_ = -1;
  Slot slot_;
};

// Runs `body` as user `user` in a child; its exit status. For tests that need root.
inline int run_as(uid_t user, const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(::setresuid(user, user, user) == 0 ? body() : 99);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}
inline constexpr uid_t nobody = 65534;

inline bool is_root() { return ::geteuid() == 0; }

}  // namespace beeline::port::test
