// Which device, which GID.

#include <endian.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

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
    if (list_ == nullptr)
      return fail_errno(errno, "listing the devices of the " + std::string(provider_.name()) + " provider");
    return {};
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
  if (context == nullptr)
    return fail_errno(errno, fmt::format("opening device {}", provider.get_device_name(device)));
  return Context(context, {&provider});
}

struct GidSlot {
  GidChoice choice;
  std::uint32_t netdev_index = 0;
};

// Readable, non-zero RoCE v2 entries; other slots are skipped, as hardware tables have
// holes and hold every address twice (v1 and v2).
std::vector<GidSlot> usable_gids(Provider& provider, ibv_context* context, std::uint8_t port,
                                 int table_length) {
  std::vector<GidSlot> slots;
  for (int index = 0; index < table_length; ++index) {
    ibv_gid_entry entry{};
    if (provider.query_gid_ex(context, port, static_cast<std::uint32_t>(index), &entry) != 0) continue;
    const Gid gid = to_gid(entry.gid);
    if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || gid.is_zero()) continue;
    slots.push_back({{index, gid}, entry.ndev_ifindex});
  }
  return slots;
}

std::string interface_name(std::uint32_t index) {
  char name[IF_NAMESIZE] = "";
  if (index == 0 || if_indextoname(index, name) == nullptr) return {};
  return name;
}

DeviceSummary summarize(Provider& provider, ibv_device* device) {
  DeviceSummary summary;
  summary.name = provider.get_device_name(device);
  summary.guid = be64toh(provider.get_device_guid(device));
  const auto context = open_one(provider, device);
  ibv_port_attr port{};
  if (!context || provider.query_port(context->get(), 1, &port) != 0) return summary;
  summary.active = port.state == IBV_PORT_ACTIVE;
  summary.active_mtu_bytes = mtu_bytes(port.active_mtu);
  summary.max_mtu_bytes = mtu_bytes(port.max_mtu);
  for (const GidSlot& slot : usable_gids(provider, context->get(), 1, port.gid_tbl_len)) {
    summary.gids.push_back(slot.choice);
    if (summary.netdev.empty()) summary.netdev = interface_name(slot.netdev_index);
  }
  return summary;
}

std::string list_names(const std::vector<DeviceSummary>& devices) {
  if (devices.empty()) return "there is no device at all: no interface has an address";
  std::string text = "there are:";
  for (const DeviceSummary& device : devices)
    text += fmt::format(" {}{}{}", device.name, device.netdev.empty() ? "" : "/" + device.netdev,
                        !device.active        ? " (down)"
                        : device.gids.empty() ? " (no address)"
                                              : "");
  return text;
}

// Lower is better.
int rank_of(const Gid& gid) {
  if (gid.is_link_local()) return 3;
  if (gid.is_loopback()) return 2;
  return gid.is_v4() ? 0 : 1;
}

}  // namespace

Result<std::vector<DeviceSummary>> summarize_devices(Provider& provider) {
  const DeviceList list(provider);
  BEELINE_TRY_VOID(list.check());
  std::vector<DeviceSummary> summaries;
  for (ibv_device* device : list) summaries.push_back(summarize(provider, device));
  return summaries;
}

Result<Context> open_device(Provider& provider, const std::string& name) {
  const DeviceList list(provider);
  BEELINE_TRY_VOID(list.check());
  std::vector<DeviceSummary> seen;
  for (ibv_device* device : list) {
    seen.push_back(summarize(provider, device));
    const DeviceSummary& summary = seen.back();
    if (name.empty() ? summary.active && !summary.gids.empty() : summary.name == name)
      return open_one(provider, device);
  }
  if (name.empty())
    return fail(Errc::not_found, "no usable RDMA device (up, with an address); {}", list_names(seen));
  return fail(Errc::not_found, "no RDMA device {}; {}", name, list_names(seen));
}

Result<GidChoice> choose_gid(Provider& provider, ibv_context* context, std::uint8_t port,
                             std::optional<int> wanted) {
  const char* device = provider.get_device_name(context->device);
  ibv_port_attr attributes{};
  if (const int error = provider.query_port(context, port, &attributes); error != 0)
    return fail_errno(error, fmt::format("querying port {} of {}", port, device));
  const auto slots = usable_gids(provider, context, port, attributes.gid_tbl_len);
  if (slots.empty())
    return fail(Errc::not_found, "device {} has no RoCE v2 GID: give its interface an address", device);
  if (wanted) {
    for (const GidSlot& slot : slots)
      if (slot.choice.index == *wanted) return slot.choice;
    std::string there;
    for (const GidSlot& slot : slots)
      there += fmt::format(" {} ({})", slot.choice.index, to_string(slot.choice.gid));
    return fail(Errc::not_found, "device {} has no RoCE v2 GID at index {}; there are:{}", device, *wanted,
                there);
  }
  const auto best = std::min_element(slots.begin(), slots.end(), [](const GidSlot& a, const GidSlot& b) {
    return rank_of(a.choice.gid) < rank_of(b.choice.gid);
  });
  return best->choice;
}

}  // namespace beeline::verbs
