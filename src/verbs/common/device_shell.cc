#include "verbs/common/device_shell.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace beeline::verbs {
namespace {

template <std::size_t N>
void copy_text(char (&out)[N], std::string_view text) {
  const std::size_t length = std::min(text.size(), N - 1);
  std::memcpy(out, text.data(), length);
  out[length] = '\0';
}

}  // namespace

void name_device(ibv_device& device, std::string_view name) {
  device.node_type = IBV_NODE_CA;
  device.transport_type = IBV_TRANSPORT_IB;
  copy_text(device.name, name);
  copy_text(device.dev_name, name);
  // Where `beeline run` shows the device (preload/tree).
  copy_text(device.dev_path, std::string("/sys/class/infiniband_verbs/").append(name));
  copy_text(device.ibdev_path, std::string("/sys/class/infiniband/").append(name));
}

std::uint32_t mtu_bytes(ibv_mtu mtu) {
  if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096) return 0;
  return 128u << static_cast<unsigned>(mtu);
}

ibv_mtu mtu_enum(std::uint32_t bytes) {
  int value = IBV_MTU_4096;
  while (value > IBV_MTU_256 && (128u << value) > bytes) --value;
  return static_cast<ibv_mtu>(value);
}

Gid to_gid(const ibv_gid& gid) {
  Gid out;
  std::memcpy(out.bytes.data(), gid.raw, sizeof gid.raw);
  return out;
}

ibv_gid from_gid(const Gid& gid) {
  ibv_gid out;
  std::memcpy(out.raw, gid.bytes.data(), sizeof out.raw);
  return out;
}

}  // namespace beeline::verbs
