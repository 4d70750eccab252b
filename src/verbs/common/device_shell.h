// What every provider of ours puts around the verbs structs it hands out.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/address.h"

namespace beeline::verbs {

// libmlx5 and libefa, which many programs link, read the pointer right behind struct
// ibv_device to learn whether a device is theirs. The zeros there say no; they cover
// the whole of rdma-core's private struct verbs_device.
struct DeviceShell {
  ibv_device device{};
  std::array<std::byte, 768> zeros{};
};

// Fills names and types; a name that is too long is cut.
void name_device(ibv_device& device, std::string_view name);

// MTU values of the verbs: 256 … 4096 bytes and back; IBV_MTU_256 … IBV_MTU_4096.
std::uint32_t mtu_bytes(ibv_mtu mtu);   // 0 for a value that is none
ibv_mtu mtu_enum(std::uint32_t bytes);  // the largest that is not above `bytes`

Gid to_gid(const ibv_gid& gid);
ibv_gid from_gid(const Gid& gid);

}  // namespace beeline::verbs
