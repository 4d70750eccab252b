#include "cli/devices_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace beeline::cli {
namespace {

DeviceView view_of(const verbs::DeviceSummary& summary) { return {summary, std::nullopt, {}}; }

std::vector<DeviceView> some_devices() {
  verbs::DeviceSummary eth;
  eth.name = "bee0";
  eth.netdev = "eth0";
  eth.active = true;
  eth.active_mtu_bytes = 1024;
  eth.max_mtu_bytes = 4096;
  eth.guid = 0x0200'00FF'FE00'0001;
  eth.gids = {{0, Gid::v4(10, 0, 0, 1)}, {2, *parse_address("fe80::1")}};
  verbs::DeviceSummary bare;
  bare.name = "bee1";
  DeviceView first = view_of(eth);
  first.numa_node = 1;
  first.counters.values = {{"rx_bytes", 12}};
  return {first, view_of(bare)};
}

TEST(DevicesTable, HasALinePerGidAndNamesTheDeviceOnce) {
  EXPECT_EQ(devices_table(some_devices()),
            "device  interface  state   rate  MTU (active/max)  NUMA  provider  GID  type     address\n"
            "bee0    eth0       active  -     1024/4096         1     soft      0    RoCE v2  10.0.0.1\n"
            "                                                                   2    RoCE v2  fe80::1\n"
            "bee1    -          down    -     0/0               -     soft      -    -        no address\n");
}

TEST(DevicesTable, ShowsWhatIsNeverChosenAndSaysWhy) {
  verbs::DeviceSummary hardware;
  hardware.name = "mlx5_0";
  hardware.provider = "system";
  hardware.active = true;
  hardware.gbit_per_s = 100;
  hardware.gids = {{3, Gid::v4(10, 0, 0, 1)}};
  hardware.other_gids = {{2, Gid::v4(10, 0, 0, 1), IBV_GID_TYPE_ROCE_V1}};
  verbs::DeviceSummary second = hardware;
  second.port = 2;
  second.link = "InfiniBand";
  second.gids.clear();
  second.other_gids = {{0, *parse_address("fe80::1"), IBV_GID_TYPE_IB}};
  const std::string table = devices_table({view_of(hardware), view_of(second)});
  EXPECT_NE(table.find("100 Gb/s"), std::string::npos) << table;
  EXPECT_LT(table.find("2    RoCE v1"), table.find("3    RoCE v2")) << table;
  EXPECT_NE(table.find("mlx5_0 port 2"), std::string::npos) << table;
  EXPECT_NE(table.find("InfiniBand, not RoCE: never used"), std::string::npos) << table;
  second.trouble = "opening device mlx5_0: Permission denied";
  EXPECT_NE(devices_table({view_of(second)}).find("Permission denied"), std::string::npos);
}

TEST(DevicesJson, IsValidAndComplete) {
  const auto json = nlohmann::json::parse(devices_json(some_devices()));
  EXPECT_EQ(json["version"], 1);
  ASSERT_EQ(json["devices"].size(), 2u);
  const auto& bee0 = json["devices"][0];
  EXPECT_EQ(bee0["name"], "bee0");
  EXPECT_EQ(bee0["active"], true);
  EXPECT_EQ(bee0["numa_node"], 1);
  EXPECT_EQ(bee0["counters"]["rx_bytes"], 12);
  EXPECT_TRUE(json["devices"][1]["numa_node"].is_null());
  EXPECT_EQ(bee0["guid"], "020000fffe000001");
  EXPECT_EQ(bee0["gids"][1]["index"], 2);
  EXPECT_EQ(bee0["gids"][0]["gid"], "0000:0000:0000:0000:0000:ffff:0a00:0001");
  EXPECT_TRUE(json["devices"][1]["gids"].empty());
}

TEST(CardText, SaysHowPacketsAreCheckedAndCountsThem) {
  nic::CardCounters counters;
  counters.icrc_affine = 1234567;
  port::PortCounters port;
  port.truncated = 89;
  const std::string text = card_text({}, counters, port, false);
  const std::string strict = card_text({}, counters, port, true);
  EXPECT_NE(strict.find("exactly (strict)"), std::string::npos) << strict;
  EXPECT_EQ(strict.find("affine"), std::string::npos) << strict;
  EXPECT_NE(text.find("affine"), std::string::npos);
  EXPECT_NE(text.find("1234567"), std::string::npos);
  EXPECT_NE(text.find("datagrams cut short                         89"), std::string::npos) << text;
}

TEST(TrainsText, SaysOnOrOffAndWhy) {
  const std::string text = trains_text({{"bee0", "10.0.0.1", "the kernel cuts for eth0", true},
                                        {"bee1", "10.1.0.1", "BEELINE_GSO=off", false}});
  EXPECT_NE(text.find("bee0 10.0.0.1: on (the kernel cuts for eth0)"), std::string::npos) << text;
  EXPECT_NE(text.find("bee1 10.1.0.1: off (BEELINE_GSO=off)"), std::string::npos) << text;
}

}  // namespace
}  // namespace beeline::cli
