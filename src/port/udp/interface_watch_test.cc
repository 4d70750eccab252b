#include "port/udp/interface_watch.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>

#include "port/udp/socket_address.h"
#include "port/udp/udp_port.h"

namespace beeline::port {
namespace {

constexpr int cannot = 77;

// `body` returns 0, or which of its steps failed.
void in_a_namespace_of_its_own(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ::_exit(cannot);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == cannot)
    std::puts("needs a network namespace: not run");
  else
    EXPECT_EQ(WEXITSTATUS(status), 0) << "step";
}

// The namespace's lo, by the calls that ifconfig(8) makes.
class Loopback {
 public:
  bool set_up(bool up) const {
    ifreq request = named();
    request.ifr_flags = static_cast<short>(up ? IFF_UP : 0);
    return ::ioctl(control_.get(), SIOCSIFFLAGS, &request) == 0;
  }
  bool set_address(std::uint32_t address) const {
    ifreq request = named();
    SocketAddress name{};
    name.v4.sin_family = AF_INET;
    name.v4.sin_addr.s_addr = htonl(address);
    std::memcpy(&request.ifr_addr, &name.v4, sizeof name.v4);
    return ::ioctl(control_.get(), SIOCSIFADDR, &request) == 0;
  }

 private:
  static ifreq named() {
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    return request;
  }
  Descriptor control_{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
};

bool readable(const InterfaceWatch& watch) {
  pollfd entry{watch.descriptor(), POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

TEST(InterfaceWatch, HearsOfLinksAndAddresses) {
  in_a_namespace_of_its_own([] {
    InterfaceWatch watch;
    const Loopback lo;
    if (watch.descriptor() < 0 || watch.take_change() || readable(watch)) return 1;
    if (!lo.set_up(true) || !readable(watch) || !watch.take_change()) return 2;
    if (watch.take_change() || readable(watch)) return 3;
    if (!lo.set_address(0x0A00'0001) || !watch.take_change()) return 4;
    if (!lo.set_up(false) || !watch.take_change() || watch.take_change()) return 5;
    watch.close();
    return watch.take_change() ? 6 : 0;
  });
}

// More than the socket holds: that itself is a change, and what comes later is heard again.
TEST(InterfaceWatch, OutlivesMoreThanItCanHold) {
  in_a_namespace_of_its_own([] {
    InterfaceWatch watch;
    const Loopback lo;
    for (std::uint32_t i = 0; i < 3000; ++i)
      if (!lo.set_address(0x0A00'0001 + i % 2)) return 1;
    if (!watch.take_change()) return 2;
    if (watch.take_change() || readable(watch)) return 3;
    return lo.set_up(true) && watch.take_change() ? 0 : 4;
  });
}

TEST(InterfaceWatch, WakesWhoeverWaitsAtThePort) {
  in_a_namespace_of_its_own([] {
    const auto port = make_udp_port(IcrcCheck::plain);
    const Loopback lo;
    if (!port || (*port)->take_interface_change(true)) return 1;
    if (!lo.set_up(true)) return 2;
    (*port)->wait(TimePoint::never());  // hangs if nothing wakes it
    if (!(*port)->take_interface_change(false) || (*port)->take_interface_change(true)) return 3;
    const auto listed = (*port)->interfaces();
    const bool up = listed && listed->size() == 1 && listed->front().name == "lo" && listed->front().up;
    return up ? 0 : 4;
  });
}

TEST(Interfaces, WithoutAnAddressAreListedOnlyAmongAll) {
  in_a_namespace_of_its_own([] {
    const auto all = list_all_interfaces(), with_address = list_interfaces();  // lo, down
    return all && with_address && all->size() == 1 && with_address->empty() && !all->front().up ? 0 : 1;
  });
}

}  // namespace
}  // namespace beeline::port
