#include "port/udp/trains.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "port/udp/socket_address.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

namespace beeline::port {
namespace {

constexpr std::string_view feature_name = "tx-udp-segmentation", merging_name = "rx-gro";
constexpr std::string_view bridge = "bridge";
// Drivers of devices that pass trains on whole, to where the kernel cuts them or a socket takes them.
constexpr std::string_view passing_drivers[] = {"veth", "tun", bridge, "dummy"};

bool passes_on(const CuttingFacts& facts) {
  return facts.loopback || std::find(std::begin(passing_drivers), std::end(passing_drivers), facts.driver) !=
                               std::end(passing_drivers);
}

Descriptor any_socket() { return Descriptor(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)); }

// SIOCETHTOOL; all that is asked for here needs no privilege.
class Ethtool {
 public:
  explicit Ethtool(const std::string& interface) : socket_(any_socket()) {
    interface.copy(request_.ifr_name, sizeof request_.ifr_name - 1);
  }

  std::optional<std::string> driver() {
    ethtool_drvinfo info{};
    info.cmd = ETHTOOL_GDRVINFO;
    if (!ask(&info)) return std::nullopt;
    return std::string(info.driver, ::strnlen(info.driver, sizeof info.driver));
  }

  std::optional<bool> feature(std::string_view name) {
    const auto index = feature_index(name);
    if (!index) return std::nullopt;
    const std::size_t blocks = *index / 32 + 1;
    std::vector<std::uint32_t> storage(
        (sizeof(ethtool_gfeatures) + blocks * sizeof(ethtool_get_features_block)) / 4);
    auto* features = reinterpret_cast<ethtool_gfeatures*>(storage.data());
    features->cmd = ETHTOOL_GFEATURES;
    features->size = static_cast<std::uint32_t>(blocks);
    if (!ask(features)) return std::nullopt;
    return (features->features[*index / 32].active >> *index % 32 & 1) != 0;
  }

 private:
  bool ask(void* what) {
    request_.ifr_data = static_cast<char*>(what);
    return ::ioctl(socket_.get(), SIOCETHTOOL, &request_) == 0;
  }

  // How many features have names.
  std::optional<std::uint32_t> string_count() {
    alignas(ethtool_sset_info) std::array<std::uint32_t, sizeof(ethtool_sset_info) / 4 + 1> storage{};
    auto* info = reinterpret_cast<ethtool_sset_info*>(storage.data());
    info->cmd = ETHTOOL_GSSET_INFO;
    info->sset_mask = std::uint64_t{1} << ETH_SS_FEATURES;
    if (!ask(info) || info->sset_mask == 0) return std::nullopt;
    return info->data[0];
  }

  std::optional<std::size_t> feature_index(std::string_view name) {
    const auto count = string_count();
    if (!count) return std::nullopt;
    std::vector<std::uint32_t> storage(
        (sizeof(ethtool_gstrings) + std::size_t{*count} * ETH_GSTRING_LEN) / 4 + 1);
    auto* strings = reinterpret_cast<ethtool_gstrings*>(storage.data());
    strings->cmd = ETHTOOL_GSTRINGS;
    strings->string_set = ETH_SS_FEATURES;
    strings->len = *count;
    if (!ask(strings)) return std::nullopt;
    for (std::size_t i = 0; i < *count; ++i) {
      const char* text = reinterpret_cast<const char*>(strings->data) + i * ETH_GSTRING_LEN;
      if (std::string_view(text, ::strnlen(text, ETH_GSTRING_LEN)) == name) return i;
    }
    return std::nullopt;
  }

  Descriptor socket_;
  ifreq request_{};
};

CuttingFacts facts_of_device(const std::string& interface) {
  Ethtool ethtool(interface);
  CuttingFacts facts;
  const auto cuts = ethtool.feature(feature_name);
  const auto merges = ethtool.feature(merging_name);
  const auto driver = ethtool.driver();
  facts.known = cuts && merges && driver;
  facts.merges = merges.value_or(true);
  facts.device_cuts = cuts.value_or(false);
  facts.driver = driver.value_or("");
  return facts;
}

// Any of them may be a port of the bridge; to ask which are would change nothing for those that have none.
std::string hardware_that_cuts() {
  const std::unique_ptr<struct if_nameindex, decltype(&::if_freenameindex)> list(::if_nameindex(),
                                                                                 &::if_freenameindex);
  for (const struct if_nameindex* entry = list.get(); entry != nullptr && entry->if_name != nullptr;
       ++entry) {
    const CuttingFacts facts = facts_of_device(entry->if_name);
    if (facts.device_cuts && !facts.driver.empty() && !passes_on(facts)) return entry->if_name;
  }
  return {};
}

struct Holder {
  std::string name;
  bool loopback = false;
};

// The interface that has the address.
Holder holder_of(const IpAddress& address) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  for (const ifaddrs* entry = raw; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    SocketAddress name;
    std::memcpy(&name.v4, entry->ifa_addr, sizeof name.v4);
    if (address_of(name) != address) continue;
    const std::string label = entry->ifa_name;
    return {label.substr(0, label.find(':')), (entry->ifa_flags & IFF_LOOPBACK) != 0};
  }
  return {"lo", address.is_loopback()};  // all of 127/8 is the loopback interface's
}

}  // namespace

TrainRule judge_trains(Segmentation setting, bool kernel_can, bool ipv4, const std::string& interface,
                       const CuttingFacts& facts) {
  if (setting == Segmentation::off) return {false, "BEELINE_GSO=off"};
  if (!kernel_can) return {false, "the kernel has no UDP_SEGMENT (Linux 4.18 and later)"};
  if (!ipv4) return {true, "over IPv6 packets have no identification"};
  if (setting == Segmentation::on) return {true, "BEELINE_GSO=on"};
  if (facts.loopback) return {true, "loopback"};
  if (!facts.known)
    return {false, fmt::format("what {} does with them cannot be asked (ethtool)", interface)};
  if (!facts.device_cuts) return {true, fmt::format("the kernel cuts for {}", interface)};
  const std::string& cutter = facts.driver == bridge ? facts.behind_bridge : interface;
  if (passes_on(facts) && facts.behind_bridge.empty())
    return {true, fmt::format("{} ({}) leaves cutting to the kernel", interface, facts.driver)};
  return {false, fmt::format("{} cuts by itself, and how it numbers is not known; "
                             "`ethtool -K {} {} off` leaves it to the kernel, BEELINE_GSO=on trusts it",
                             cutter, cutter, feature_name)};
}

CuttingFacts cutting_facts(const std::string& interface, bool loopback) {
  CuttingFacts facts;
  if (!loopback) facts = facts_of_device(interface);
  facts.loopback = loopback;
  if (facts.driver == bridge) facts.behind_bridge = hardware_that_cuts();
  return facts;
}

bool kernel_cuts_trains() {
  const Descriptor socket = any_socket();
  const int ordinary = 0;
  return ::setsockopt(socket.get(), IPPROTO_UDP, UDP_SEGMENT, &ordinary, sizeof ordinary) == 0;
}

// Behind a bridge there are other interfaces.
bool merges_nothing(const CuttingFacts& facts) {
  return facts.loopback || (facts.known && !facts.merges && passes_on(facts) && facts.driver != bridge);
}

CuttingFacts cutting_facts(const IpAddress& address) {
  const Holder holder = holder_of(address);
  return cutting_facts(holder.name, holder.loopback);
}

TrainRule train_rule(Segmentation setting, const IpAddress& address) {
  const bool kernel_can = kernel_cuts_trains();
  if (!address.is_v4()) return judge_trains(setting, kernel_can, false, {}, {});
  const Holder holder = holder_of(address);
  return judge_trains(setting, kernel_can, true, holder.name, cutting_facts(holder.name, holder.loopback));
}

}  // namespace beeline::port
