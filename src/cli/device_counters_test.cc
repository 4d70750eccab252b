#include "cli/device_counters.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/interface_counters.h"

namespace beeline::cli {
namespace {

namespace fs = std::filesystem;

// A /sys of a test's own.
class DeviceCountersTest : public testing::Test {
 public:
  DeviceCountersTest() {
    std::string name = fs::temp_directory_path() / "beeline-sys.XXXXXX";
    sys_ = mkdtemp(name.data());
    card_.name = "mlx5_0";
    card_.netdev = "eth0";
  }
  ~DeviceCountersTest() override { fs::remove_all(sys_); }

 protected:
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((sys_ / path).parent_path());
    std::ofstream(sys_ / path) << text;
  }

  fs::path sys_;
  verbs::DeviceSummary card_;
};

TEST_F(DeviceCountersTest, APortCountsInWordsAndWeInBytes) {
  write("class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "1000\n");
  write("class/infiniband/mlx5_0/ports/1/counters/port_xmit_packets", "7\n");
  write("class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "3\n");
  write("class/infiniband/mlx5_0/ports/1/hw_counters/not_a_number", "N/A\n");
  write("class/net/eth0/statistics/rx_bytes", "1\n");  // the port's own go first
  const DeviceCounters counters = read_counters(card_, sys_);
  const std::map<std::string, std::uint64_t> expected = {
      {"rx_bytes", 4000}, {"tx_packets", 7}, {"out_of_sequence", 3}};
  EXPECT_EQ(counters.values, expected);
  EXPECT_EQ(counters.source, "port counters");
}

TEST_F(DeviceCountersTest, TheKernelsSoftwareCardCountsPackets) {
  write("class/infiniband/mlx5_0/ports/1/hw_counters/sent_pkts", "20\n");
  write("class/infiniband/mlx5_0/ports/1/hw_counters/rcvd_pkts", "8\n");
  write("class/infiniband/mlx5_0/ports/1/hw_counters/lifespan", "12\n");
  const std::map<std::string, std::uint64_t> expected = {{"tx_packets", 20}, {"rx_packets", 8}};
  EXPECT_EQ(read_counters(card_, sys_).values, expected);
}

TEST_F(DeviceCountersTest, ACardInSoftwareHasThoseOfItsInterface) {
  write("class/net/eth0/statistics/tx_bytes", "5\n");
  const DeviceCounters counters = read_counters(card_, sys_);
  EXPECT_EQ(counters.source, "interface eth0");
  EXPECT_EQ(counters.values.at("tx_bytes"), 5u);
}

TEST_F(DeviceCountersTest, NothingThereIsNothingCounted) {
  EXPECT_TRUE(read_counters(card_, sys_).values.empty());
  EXPECT_EQ(numa_node(card_, sys_), std::nullopt);
}

TEST_F(DeviceCountersTest, TheNodeIsTheDevicesOwnOrItsInterfaces) {
  write("class/net/eth0/device/numa_node", "1\n");
  EXPECT_EQ(numa_node(card_, sys_), 1);
  write("class/infiniband/mlx5_0/device/numa_node", "0\n");
  EXPECT_EQ(numa_node(card_, sys_), 0);
  write("class/infiniband/mlx5_0/device/numa_node", "-1\n");  // the kernel's "no node"
  EXPECT_EQ(numa_node(card_, sys_), 1);
}

// In a namespace of its own lo has carried nothing, whatever /sys shows: that is still the old one's.
TEST(InterfaceCounters, AreThoseOfThisNetworkNamespace) {
  EXPECT_EXIT(
      {
        const bool own = unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 || unshare(CLONE_NEWNET) == 0;
        const auto before = interface_counters("lo");
        const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
        ifreq up{};
        std::strcpy(up.ifr_name, "lo");
        up.ifr_flags = IFF_UP;
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(9);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const bool sent =
            (!own || ioctl(socket, SIOCSIFFLAGS, &up) == 0) &&
            sendto(socket, "12345", 5, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 5;
        const auto after = interface_counters("lo");
        const bool right = sent && (!own || before.at("tx_bytes") == 0) &&
                           after.at("tx_bytes") >= before.at("tx_bytes") + 33 &&
                           after.at("rx_packets") > before.at("rx_packets");
        std::_Exit(right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(InterfaceCounters, OfNoInterfaceAreNone) { EXPECT_TRUE(interface_counters("no-such-one").empty()); }

TEST(DeviceRates, ArePerSecondAndNameWhatElseChanged) {
  const DeviceCounters before{
      "bee0", 1, "", {{"rx_bytes", 1'000}, {"tx_packets", 10}, {"rx_dropped", 4}, {"a", 9}}};
  const DeviceCounters after{
      "bee0", 1, "", {{"rx_bytes", 4'000'001'000}, {"tx_packets", 4'010}, {"rx_dropped", 8}, {"a", 1}}};
  const DeviceRates rates = rates_between(before, after, std::chrono::seconds(2));
  EXPECT_DOUBLE_EQ(rates.rx_GBps, 2.0);
  EXPECT_DOUBLE_EQ(rates.tx_kpps, 2.0);
  EXPECT_DOUBLE_EQ(rates.tx_GBps, 0.0);
  const std::map<std::string, double> other = {{"rx_dropped", 2.0}};
  EXPECT_EQ(rates.other, other);
  EXPECT_NE(rates_text({rates}).find("rx_dropped 2"), std::string::npos);
  const auto json = nlohmann::json::parse(rates_json({rates}, std::chrono::seconds(2)));
  EXPECT_EQ(json["rates"][0]["rx_GBps"], 2.0);
  EXPECT_EQ(json["rates"][0]["other_per_s"]["rx_dropped"], 2.0);
}

}  // namespace
}  // namespace beeline::cli
