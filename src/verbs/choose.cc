// Which device, which GID.

#include <endian.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <tuple>

#include "base/log.h"
#include "verbs/common/device_shell.h"
#include "verbs/verbs.h"

namespace beeline::verbs {
namespace {

// The list of the provider, freed with the object.
class DeviceList {
 public:
  explicit DeviceList(Provider& provider) : provider_(provider), list_(provider.get_device_list(&count_)) {}
  ~DeviceList() {
    if (list_ != nullptr) provider_.free_device_list(list_);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  Result<void> check() const {
    if (list_ != nullptr) return {};
    auto failure =
        fail_errno(errno, "listing the devices of the " + std::string(provider_.name()) + " provider");
    if (const std::string why = provider_.why(); !why.empty()) failure.value().message += ": " + why;
    return failure;
  }
  ibv_device** begin() const { return list_; }
  ibv_device** end() const { return list_ + count_; }

 private:
  Provider& provider_;
  int count_ = 0;
  ibv_device** list_;
};

Result<Context> open_one(Provider& provider, ibv_device* device) {
  ibv_context* context = provider.open_device(device);
  if (context == nullptr) {
    auto failure = fail_errno(errno, fmt::format("opening device {}", provider.get_device_name(device)));
    if (const std::string why = provider.why(); !why.empty()) failure.value().message += ": " + why;
    return failure;
  }
  return Context(context, {&provider});
}

struct Slot : GidSlot {
  std::uint32_t netdev_index = 0;
  bool usable() const { return type == IBV_GID_TYPE_ROCE_V2; }
};

// Readable, non-zero entries; others are skipped, as hardware tables have holes. They hold
// every address twice (v1 and v2).
std::vector<Slot> gid_table(Provider& provider, ibv_context* context, std::uint8_t port, int table_length) {
  std::vector<Slot> slots;
  for (int index = 0; index < table_length; ++index) {
    ibv_gid_entry entry{};
    if (provider.query_gid_ex(context, port, static_cast<std::uint32_t>(index), &entry) != 0) continue;
    const Gid gid = to_gid(entry.gid);
    if (!gid.is_zero()) slots.push_back({{index, gid, entry.gid_type}, entry.ndev_ifindex});
  }
  return slots;
}

std::string interface_name(std::uint32_t index) {
  char name[IF_NAMESIZE] = "";
  if (index == 0 || if_indextoname(index, name) == nullptr) return {};
  return name;
}

const char* link_name(const ibv_device& device, const ibv_port_attr& port) {
  if (device.transport_type == IBV_TRANSPORT_IWARP) return "iWARP";
  return port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand";
}

// Encodings of ibv_port_attr: lanes and speed of a lane (IBTA vol. 1, PortInfo).
struct Encoded {
  unsigned code;
  double value;
};
constexpr Encoded widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
constexpr Encoded speeds[] = {{1, 2.5}, {2, 5}, {4, 10}, {8, 10}, {16, 14}, {32, 25}, {64, 50}, {128, 100}};

double look_up(std::span<const Encoded> table, unsigned code) {
  for (const Encoded& row : table)
    if (row.code == code) return row.value;
  return 0;
}

// One lane at the lowest speed is what drivers say who do not know.
double rate_of(const ibv_port_attr& port) {
  if (port.active_width == 1 && port.active_speed == 1) return 0;
  return look_up(widths, port.active_width) * look_up(speeds, port.active_speed);
}

void summarize_port(Provider& provider, ibv_context* context, DeviceSummary& summary) {
  ibv_port_attr port{};
  if (provider.query_port(context, summary.port, &port) != 0) return;
  summary.active = port.state == IBV_PORT_ACTIVE;
  summary.link = link_name(*context->device, port);
  summary.gbit_per_s = rate_of(port);
  summary.active_mtu_bytes = mtu_bytes(port.active_mtu);
  summary.max_mtu_bytes = mtu_bytes(port.max_mtu);
  for (const Slot& slot : gid_table(provider, context, summary.port, port.gid_tbl_len)) {
    if (slot.usable())
      summary.gids.push_back({slot.index, slot.gid});
    else
      summary.other_gids.push_back(slot);
    if (summary.netdev.empty()) summary.netdev = interface_name(slot.netdev_index);
  }
}

std::vector<DeviceSummary> summarize(Provider& provider, ibv_device* device) {
  DeviceSummary summary;
  summary.name = provider.get_device_name(device);
  summary.provider = provider.provider_name(device);
  summary.guid = be64toh(provider.get_device_guid(device));
  const auto context = open_one(provider, device);
  if (!context) {
    summary.trouble = context.error().message;
    return {summary};
  }
  ibv_device_attr attributes{};
  const bool known = provider.query_device(context->get(), &attributes) == 0;
  const int ports = known ? std::max<int>(attributes.phys_port_cnt, 1) : 1;
  std::vector<DeviceSummary> all(static_cast<std::size_t>(ports), summary);
  for (int port = 1; port <= ports; ++port) {
    DeviceSummary& one = all[static_cast<std::size_t>(port) - 1];
    one.port = static_cast<std::uint8_t>(port);
    summarize_port(provider, context->get(), one);
  }
  return all;
}

std::string list_names(const std::vector<DeviceSummary>& devices) {
  if (devices.empty())
    return "there is no device at all: libibverbs has none, and there is no bee0 without an interface that "
           "has an "
           "address, nor with BEELINE_PROVIDER=system";
  std::vector<std::string> names;
  for (const DeviceSummary& device : devices) {
    std::vector<std::string> notes;
    if (!device.netdev.empty()) notes.push_back("on " + device.netdev);
    if (!device.trouble.empty()) {
      notes.emplace_back("cannot be opened");
    } else if (!device.active) {
      notes.emplace_back("down");
    } else if (device.link != "Ethernet") {
      notes.push_back(device.link + ", not RoCE");
    } else if (device.gids.empty()) {
      notes.emplace_back("no address");
    }
    names.push_back(notes.empty() ? device.name
                                  : fmt::format("{} ({})", device.name, fmt::join(notes, ", ")));
  }
  return fmt::format("there are: {}", fmt::join(names, ", "));
}

// Lower is better.
int rank_of(const Gid& gid) {
  if (gid.is_link_local()) return 3;
  if (gid.is_loopback()) return 2;
  return gid.is_v4() ? 0 : 1;
}

int scope_of(const Gid& gid) { return gid.is_loopback() ? 2 : gid.is_link_local() ? 1 : 0; }

// Of a device that nobody named; lower is better. Its interface may have no routable address
// while another has one. A device that can be used, but not on that port, is better than none:
// the caller's own question about the port names both.
constexpr int wrong_port = 3, useless = 4;
constexpr const char* why_chosen[useless] = {
    "the first that is up and has a routable address",
    "no device has a routable address; the first with a link-local one",
    "no device has an address but loopback", "no device can be used on that port"};
int rank_of(const DeviceSummary& device, std::uint8_t port) {
  int best = useless;
  if (!device.active) return best;
  for (const GidChoice& gid : device.gids) best = std::min(best, scope_of(gid.gid));
  return best < useless && device.port != port ? wrong_port : best;
}

// With a peer: the same family and kind of address matter more than anything.
std::tuple<bool, bool, int> distance(const Gid& gid, const std::optional<Gid>& peer) {
  if (!peer) return {false, false, rank_of(gid)};
  return {gid.is_v4() != peer->is_v4(), scope_of(gid) != scope_of(*peer), rank_of(gid)};
}

}  // namespace

Result<std::vector<DeviceSummary>> summarize_devices(Provider& provider) {
  const DeviceList list(provider);
  BEELINE_TRY_VOID(list.check());
  std::vector<DeviceSummary> summaries;
  for (ibv_device* device : list)
    for (DeviceSummary& summary : summarize(provider, device)) summaries.push_back(std::move(summary));
  return summaries;
}

Result<Context> open_device(Provider& provider, const std::string& name, std::uint8_t port) {
  const DeviceList list(provider);
  BEELINE_TRY_VOID(list.check());
  std::vector<DeviceSummary> seen;
  ibv_device* best = nullptr;
  int best_rank = useless;
  for (ibv_device* device : list) {
    if (name == provider.get_device_name(device)) {
      logger()->debug("device {}: the one that was named", name);
      return open_one(provider, device);
    }
    for (DeviceSummary& summary : summarize(provider, device)) {
      const int rank = rank_of(summary, port);
      if (rank < best_rank) {
        best_rank = rank;
        best = device;
      }
      seen.push_back(std::move(summary));
    }
  }
  if (name.empty() && best != nullptr) {
    logger()->debug("device {}: {}; {}", provider.get_device_name(best), why_chosen[best_rank],
                    list_names(seen));
    return open_one(provider, best);
  }
  if (name.empty())
    return fail(Errc::not_found, "no usable RDMA device (up, with an address); {}", list_names(seen));
  return fail(Errc::not_found, "no RDMA device {}; {}", name, list_names(seen));
}

Result<GidChoice> choose_gid(Provider& provider, ibv_context* context, std::uint8_t port,
                             std::optional<int> wanted, const std::optional<Gid>& peer) {
  const char* device = provider.get_device_name(context->device);
  ibv_port_attr attributes{};
  if (const int error = provider.query_port(context, port, &attributes); error != 0)
    return fail_errno(error, fmt::format("querying port {} of {}", port, device));
  if (const std::string link = link_name(*context->device, attributes); link != "Ethernet")
    return fail(Errc::unsupported,
                "port {} of {} is {}, not Ethernet: Beeline speaks RoCE v2; choose another device", port,
                device, link);
  std::vector<Slot> slots = gid_table(provider, context, port, attributes.gid_tbl_len);
  slots.erase(std::remove_if(slots.begin(), slots.end(), [](const Slot& slot) { return !slot.usable(); }),
              slots.end());
  if (slots.empty())
    return fail(Errc::not_found, "device {} has no RoCE v2 GID: give its interface an address", device);
  if (wanted) {
    for (const Slot& slot : slots)
      if (slot.index == *wanted) {
        logger()->debug("GID {} of {}, {}: the index that was named", slot.index, device,
                        to_string(slot.gid));
        return GidChoice{slot.index, slot.gid};
      }
    std::string there;
    for (const Slot& slot : slots) there += fmt::format(" {} ({})", slot.index, to_string(slot.gid));
    return fail(Errc::not_found, "device {} has no RoCE v2 GID at index {}; there are:{}", device, *wanted,
                there);
  }
  const auto best = std::min_element(slots.begin(), slots.end(), [&](const Slot& a, const Slot& b) {
    return distance(a.gid, peer) < distance(b.gid, peer);
  });
  logger()->debug("GID {} of {}, {}: {}", best->index, device, to_string(best->gid),
                  peer
                      ? "nearest in kind to the peer's " + to_string(*peer)
                      : fmt::format("the best of {} (routable before loopback before link-local, IPv4 before "
                                    "IPv6)",
                                    slots.size()));
  return GidChoice{best->index, best->gid};
}

const char* gid_type_name(std::uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_ROCE_V2:
      return "RoCE v2";
    case IBV_GID_TYPE_ROCE_V1:
      return "RoCE v1";
    default:
      return "IB";
  }
}

}  // namespace beeline::verbs
