// Which devices a host's interfaces make.
#include <algorithm>

#include "nic/card.h"

namespace beeline::nic {
namespace {

constexpr std::uint32_t min_path_mtu = 256, max_path_mtu = 4096;
// IPv6 header, UDP header, the longest transport headers of a packet with payload that a
// path MTU must leave room for, ICRC.
constexpr std::uint32_t header_overhead = 40 + 8 + 36 + 4;

std::uint64_t fnv1a(std::uint64_t hash, const void* data, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i)
    hash = (hash ^ static_cast<const std::uint8_t*>(data)[i]) * 0x100000001B3u;
  return hash;
}

// An interface without a MAC (lo): the same on every start, marked as locally administered.
std::uint64_t derived_guid(const port::Interface& interface) {
  std::uint64_t hash = fnv1a(0xCBF29CE484222325u, interface.name.data(), interface.name.size());
  for (const IpAddress& address : interface.addresses)
    hash = fnv1a(hash, address.bytes.data(), address.bytes.size());
  return (hash & 0x00FF'FFFF'FFFF'FFFFu) | 0x0200'0000'0000'0000u;
}

// EUI-64 from a MAC: ff:fe in the middle, the universal/local bit inverted (RFC 4291, appendix A).
std::uint64_t eui64(const std::array<std::uint8_t, 6>& mac) {
  const std::uint8_t bytes[] = {
      static_cast<std::uint8_t>(mac[0] ^ 0x02), mac[1], mac[2], 0xFF, 0xFE, mac[3], mac[4], mac[5]};
  std::uint64_t value = 0;
  for (const std::uint8_t byte : bytes) value = value << 8 | byte;
  return value;
}

std::uint64_t guid_of(const port::Interface& interface) {
  const bool has_mac = std::any_of(interface.mac.begin(), interface.mac.end(), [](auto b) { return b != 0; });
  return has_mac ? eui64(interface.mac) : derived_guid(interface);
}

}  // namespace

std::uint32_t path_mtu_for_link(std::uint32_t link_mtu_bytes) {
  std::uint32_t mtu = max_path_mtu;
  while (mtu > min_path_mtu && mtu + header_overhead > link_mtu_bytes) mtu /= 2;
  return mtu;
}

std::vector<Device> make_devices(std::span<const port::Interface> interfaces) {
  std::vector<Device> devices;
  for (const port::Interface& interface : interfaces) {
    if (interface.addresses.empty()) continue;
    Device device;
    device.name = fmt::format("bee{}", devices.size());
    device.interface = interface;
    device.active = interface.up;
    device.active_mtu_bytes = path_mtu_for_link(interface.mtu);
    device.gids = interface.addresses;
    device.guid = guid_of(interface);
    devices.push_back(std::move(device));
  }
  return devices;
}

namespace {

// By index; an interface that was made anew under the old name is the old device's again.
const port::Interface* find_interface(const Device& device, std::span<const port::Interface> interfaces) {
  const auto with = [&](auto&& matches) {
    const auto found = std::find_if(interfaces.begin(), interfaces.end(), matches);
    return found == interfaces.end() ? nullptr : &*found;
  };
  const auto* same =
      with([&](const port::Interface& i) { return i.index != 0 && i.index == device.interface.index; });
  return same != nullptr ? same
                         : with([&](const port::Interface& i) { return i.name == device.interface.name; });
}

bool holds(std::span<const Gid> gids, const Gid& gid) {
  return std::find(gids.begin(), gids.end(), gid) != gids.end();
}

bool update_gids(std::vector<Gid>& gids, std::span<const IpAddress> addresses) {
  bool changed = false;
  for (Gid& gid : gids) {
    if (gid.is_zero() || holds(addresses, gid)) continue;
    gid = {};
    changed = true;
  }
  for (const IpAddress& address : addresses) {
    if (holds(gids, address)) continue;
    const auto free = std::find_if(gids.begin(), gids.end(), [](const Gid& gid) { return gid.is_zero(); });
    if (free != gids.end())
      *free = address;
    else
      gids.push_back(address);
    changed = true;
  }
  return changed;
}

}  // namespace

DeviceChange update_device(Device& device, std::span<const port::Interface> interfaces) {
  port::Interface now;  // of one that is gone: down, and without an address
  now.name = device.interface.name;
  now.index = device.interface.index;
  now.mtu = device.interface.mtu;
  if (const port::Interface* found = find_interface(device, interfaces)) now = *found;
  DeviceChange change;
  change.state = device.active != now.up;
  change.gids = update_gids(device.gids, now.addresses);
  device.active = now.up;
  device.active_mtu_bytes = path_mtu_for_link(now.mtu);
  device.interface = std::move(now);
  return change;
}

}  // namespace beeline::nic
