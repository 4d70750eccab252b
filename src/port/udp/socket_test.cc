// Slots, sending sockets, interfaces, and who else is on the port.
#include <gmock/gmock.h>
#include <sched.h>

#include <algorithm>
#include <set>

#include "port/udp/data_socket.h"
#include "port/udp/flow_sockets.h"
#include "port/udp/port_owner.h"
#include "port/udp/test_support.h"

namespace beeline::port::test {
namespace {

TEST(Slots, AreDistinctAndFreedWithTheirDescriptor) {
  std::set<int> taken;
  std::vector<ClaimedSlot> claims;
  for (int i = 0; i < 8; ++i) {
    auto claimed = claim_slot();
    ASSERT_TRUE(claimed);
    EXPECT_TRUE(taken.insert(claimed->slot.value).second);
    EXPECT_EQ(slot_owner(claimed->slot), ::getpid());
    claims.push_back(std::move(*claimed));
  }
}

TEST(Slots, AreFreedByTheKernelWhenTheOwnerIsKilled) {
  int line[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line), 0);
  const Descriptor ours(line[0]), theirs(line[1]);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto claimed = claim_slot();
    const Slot slot = claimed ? claimed->slot : Slot{};
    ::send(theirs.get(), &slot, sizeof slot, 0);
    ::pause();
  }
  Slot slot;
  ASSERT_EQ(::recv(ours.get(), &slot, sizeof slot, 0), 1);
  EXPECT_EQ(slot_owner(slot), pid);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  EXPECT_NE(slot_owner(slot), pid);
}

TEST(Slots, RunOutWithOneClearSentence) {
  constexpr int cannot = 77;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // A network namespace of our own: others on this machine need slots, too.
    if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ::_exit(cannot);
    std::vector<ClaimedSlot> claims;
    for (int i = 0; i < slot_count; ++i) {
      auto claimed = claim_slot();
      if (!claimed || claimed->slot.value != i) ::_exit(1);
      claims.push_back(std::move(*claimed));
    }
    const auto one_more = make_udp_port();
    if (one_more || one_more.error().code != Errc::resource_exhausted) ::_exit(2);
    claims.erase(claims.begin() + 93);
    const auto now_free = make_udp_port();
    ::_exit(now_free && (*now_free)->slot().value == 93 ? 0 : 3);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == cannot) {
    std::puts("needs a network namespace: not run");
    return;
  }
  EXPECT_EQ(WEXITSTATUS(status), 0) << "step";
}

TEST(FlowSockets, PutAFlowOnThePortOfItsHash) {
  FlowSockets flows(own_address(1), 0);
  EXPECT_EQ(*flows.port_for(0), 0xC000);
  EXPECT_EQ(*flows.port_for(0x3FFF), 0xFFFF);
  EXPECT_EQ(*flows.port_for(0x12340005), 0xC000 + (0x12340005 & 0x3FFF));
  EXPECT_EQ(*flows.port_for(0x4000), 0xC000);  // the hash wraps
  EXPECT_GE(flows.descriptor(0xC000), 0);
  EXPECT_EQ(flows.descriptor(0xC001), -1);
}

TEST(FlowSockets, StepAsideForTakenPortsAndStayThere) {
  const IpAddress address = own_address(2);
  FlowSockets flows(address, 0);
  std::uint16_t aside = 0;
  {
    const auto in_the_way = open_flow_socket(address, 0xFFFF, 0);
    ASSERT_TRUE(in_the_way && *in_the_way);
    aside = *flows.port_for(0x3FFF);
    EXPECT_EQ(aside, 0xC000);  // behind the last port comes the first
  }
  EXPECT_EQ(*flows.port_for(0x3FFF), aside) << "a flow keeps its port when the better one becomes free";
  EXPECT_NE(*flows.port_for(0), aside);
}

TEST(FlowSockets, AreBoundedAndStable) {
  FlowSockets flows(own_address(3), 0);
  const std::size_t before = open_descriptors();
  std::set<std::uint16_t> ports;
  std::vector<std::uint16_t> first;
  for (std::uint32_t hash = 0; hash < 500; ++hash) {
    first.push_back(*flows.port_for(hash * 11));
    ports.insert(first.back());
    EXPECT_GE(first.back(), 0xC000);
    EXPECT_GE(flows.descriptor(first.back()), 0);
  }
  EXPECT_EQ(ports.size(), FlowSockets::sockets_max);
  EXPECT_EQ(open_descriptors() - before, FlowSockets::sockets_max);
  for (std::uint32_t hash = 0; hash < 500; ++hash) EXPECT_EQ(*flows.port_for(hash * 11), first[hash]);
}

TEST(FlowSockets, NeverReceive) {
  const IpAddress address = own_address(4);
  FlowSockets flows(address, 0);
  const std::uint16_t port = *flows.port_for(1);
  const Descriptor stranger(::socket(AF_INET, SOCK_DGRAM, 0));
  SocketAddress name;
  const socklen_t length = fill(name, address, port, 0);
  EXPECT_EQ(::sendto(stranger.get(), "hello", 5, 0, &name.any, length), 5);
  pollfd ready{flows.descriptor(port), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 10), 0);
}

TEST(Interfaces, HaveAddressesAndLoopbackComesLast) {
  const auto interfaces = list_interfaces();
  ASSERT_TRUE(interfaces);
  ASSERT_FALSE(interfaces->empty());
  std::set<std::string> names;
  for (const Interface& interface : *interfaces) {
    EXPECT_TRUE(names.insert(interface.name).second) << interface.name;
    EXPECT_GT(interface.index, 0) << interface.name;
    EXPECT_GT(interface.mtu, 0u) << interface.name;
    EXPECT_FALSE(interface.addresses.empty()) << interface.name;
    EXPECT_TRUE(std::is_partitioned(interface.addresses.begin(), interface.addresses.end(),
                                    [](const IpAddress& address) { return address.is_v4(); }))
        << interface.name << ": IPv4 first";
    for (const IpAddress& address : interface.addresses) EXPECT_FALSE(address.is_zero());
  }
  EXPECT_TRUE(std::is_partitioned(interfaces->begin(), interfaces->end(),
                                  [](const Interface& interface) { return !interface.loopback; }));
  const auto loopback = std::find_if(interfaces->begin(), interfaces->end(),
                                     [](const Interface& interface) { return interface.loopback; });
  ASSERT_NE(loopback, interfaces->end());
  EXPECT_THAT(loopback->addresses, ::testing::Contains(IpAddress::v4(127, 0, 0, 1)));
  EXPECT_TRUE(loopback->up);
}

TEST(Interfaces, TheirAddressesCanBeOpened) {
  auto port = make_udp_port();
  ASSERT_TRUE(port);
  const auto interfaces = list_interfaces();
  ASSERT_TRUE(interfaces);
  for (const Interface& interface : *interfaces)
    for (const IpAddress& address : interface.addresses) {
      const auto result = (*port)->open_address(address);
      if (result) continue;
      // IPv6 addresses that are still being checked for duplicates cannot be bound yet; and
      // these are the host's real addresses, where another user's program may be.
      const bool excused = (result.error().code == Errc::not_found && !address.is_v4()) ||
                           (result.error().code == Errc::in_use && !port_is_free(address));
      EXPECT_TRUE(excused) << to_string(address) << ": " << result.error().message;
    }
}

// --- who holds the port ---

constexpr std::string_view udp_table =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref "
    "pointer drops\n"
    "  12: 0100007F:12B8 00000000:0000 07 00000000:00000000 00:00000000 00000000  1001        0 1 2 "
    "0000000000000000 0\n"
    "  13: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1002        0 1 2 "
    "0000000000000000 0\n"
    "garbage\n"
    "  14: zz:12B7 x\n"
    "  15: 02007F0A:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1003        0 1 2 "
    "0000000000000000 0\n";
constexpr std::string_view udp6_table =
    "  sl  local_address                         remote_address                        st tx_queue rx_queue "
    "tr tm->when "
    "retrnsmt   uid  timeout inode ref pointer drops\n"
    "  20: 00000000000000000000000001000000:12B7 00000000000000000000000000000000:0000 07 00000000:00000000 "
    "00:00000000 00000000  1004        0 1 2 0000000000000000 0\n"
    "  21: 00000000000000000000000000000000:12B7 00000000000000000000000000000000:0000 07 00000000:00000000 "
    "00:00000000 00000000  1005        0 1 2 0000000000000000 0\n";

TEST(PortOwner, IsFoundInTheKernelsTables) {
  EXPECT_EQ(find_port_owner(udp_table, false, IpAddress::v4(127, 0, 0, 1)), 1002u);
  EXPECT_EQ(find_port_owner(udp_table, false, IpAddress::v4(10, 127, 0, 2)), 1003u);
  EXPECT_EQ(find_port_owner(udp_table, false, IpAddress::v4(10, 0, 0, 1)), std::nullopt);
  EXPECT_EQ(find_port_owner(udp6_table, true, *parse_address("::1")), 1004u);
  EXPECT_EQ(find_port_owner(udp6_table, true, IpAddress::v4(10, 0, 0, 1)), 1005u)
      << "the wildcard is in the way";
  EXPECT_EQ(find_port_owner("", false, IpAddress::v4(10, 0, 0, 1)), std::nullopt);
}

TEST(PortOwner, APrivateSocketOfOursIsReportedAsOurs) {
  const IpAddress address = own_address(5);
  const Descriptor other(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  SocketAddress name;
  const socklen_t length = fill(name, address, roce_port, 0);
  ASSERT_EQ(::bind(other.get(), &name.any, length), 0);
  auto port = make_udp_port();
  ASSERT_TRUE(port);
  const auto result = (*port)->open_address(address);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::in_use);
  EXPECT_THAT(result.error().message, ::testing::AllOf(::testing::HasSubstr(to_string(address)),
                                                       ::testing::HasSubstr("program of yours")));
}

TEST(PortOwner, AForeignUserIsNamed) {
  if (!is_root()) {
    std::puts("needs root to be another user: not run");
    return;
  }
  const IpAddress address = own_address(6);
  auto port = make_udp_port();
  ASSERT_TRUE(port);
  int line[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line), 0);
  const Descriptor ours(line[0]), theirs(line[1]);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::setresuid(nobody, nobody, nobody) != 0) ::_exit(1);
    const auto socket = open_data_socket(address, 0);
    ::send(theirs.get(), socket ? "y" : "n", 1, 0);
    ::pause();
  }
  char bound = 'n';
  EXPECT_EQ(::recv(ours.get(), &bound, 1, 0), 1);
  EXPECT_EQ(bound, 'y');
  const auto result = (*port)->open_address(address);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::in_use);
  EXPECT_THAT(result.error().message, ::testing::HasSubstr("uid 65534"));
  EXPECT_TRUE((*port)->open_address(address)) << "free again";
}

}  // namespace
}  // namespace beeline::port::test
