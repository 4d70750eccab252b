// Exported verbs: address handles, also those that answer a received datagram.
#include <arpa/inet.h>

#include <cstring>
#include <optional>

#include "preload/export.h"
#include "preload/verbs/route.h"

using beeline::verbs::FullProvider;
using Real = beeline::preload::RealFunctions;
using namespace beeline::preload;

namespace {

constexpr std::size_t grh_bytes = 40, ipv4_bytes = 20;

struct Addresses {
  ibv_gid source{}, destination{};
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;
};

ibv_gid mapped(const std::uint8_t* ipv4) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xFF;
  std::memcpy(gid.raw + 12, ipv4, 4);
  return gid;
}

// The sum over a good header, its checksum included, is all ones (RFC 1071).
bool is_ipv4_header(const std::uint8_t* bytes) {
  if (bytes[0] != 0x45) return false;
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < ipv4_bytes; i += 2)
    sum += static_cast<std::uint32_t>(bytes[i] << 8 | bytes[i + 1]);
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return sum == 0xFFFF;
}

// What stands in the 40 bytes before a datagram: an IPv6 header (as GRH), or nothing and then an IPv4
// header (annex A17 of the InfiniBand specification, RoCE v2).
std::optional<Addresses> read_addresses(const ibv_grh& grh) {
  std::uint8_t bytes[grh_bytes];
  std::memcpy(bytes, &grh, sizeof bytes);
  const std::uint8_t* ipv4 = bytes + grh_bytes - ipv4_bytes;
  Addresses found;
  if (is_ipv4_header(ipv4)) {
    found.source = mapped(ipv4 + 12);
    found.destination = mapped(ipv4 + 16);
    found.traffic_class = ipv4[1];
    return found;
  }
  const std::uint32_t word = ntohl(grh.version_tclass_flow);
  if (word >> 28 != 6) return std::nullopt;
  found.source = grh.sgid;
  found.destination = grh.dgid;
  found.traffic_class = static_cast<std::uint8_t>(word >> 20);
  found.flow_label = word & 0xFFFFF;
  return found;
}

// The index of the device's RoCE v2 GID `gid`.
std::optional<std::uint8_t> find_gid(FullProvider& provider, ibv_context* context, std::uint8_t port,
                                     const ibv_gid& gid) {
  for (std::uint32_t index = 0; index < 256; ++index) {
    ibv_gid_entry entry{};
    const int error = provider.query_gid_ex(context, port, index, &entry);
    if (error != 0 && error != ENODATA) break;  // behind the end of the table
    if (error == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
        std::memcmp(&entry.gid, &gid, sizeof gid) == 0)
      return static_cast<std::uint8_t>(index);
  }
  return std::nullopt;
}

// 0, or an errno value.
int answer_to(FullProvider& provider, ibv_context* context, std::uint8_t port, const ibv_wc& wc,
              const ibv_grh* grh, ibv_ah_attr& out) {
  out = {};
  out.dlid = wc.slid;
  out.sl = wc.sl;
  out.src_path_bits = wc.dlid_path_bits;
  out.port_num = port;
  if ((wc.wc_flags & IBV_WC_GRH) == 0) return 0;
  if (grh == nullptr) return EINVAL;
  const auto addresses = read_addresses(*grh);
  if (!addresses) return EINVAL;
  const auto index = find_gid(provider, context, port, addresses->destination);
  if (!index) return EINVAL;
  out.is_global = 1;
  out.grh.dgid = addresses->source;
  out.grh.sgid_index = *index;
  out.grh.flow_label = addresses->flow_label;
  out.grh.traffic_class = addresses->traffic_class;
  out.grh.hop_limit = 0xFF;
  return 0;
}

}  // namespace

extern "C" {

BEELINE_EXPORT ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  return route<&FullProvider::create_ah, &Real::ibv_create_ah>(pd, attr);
}
BEELINE_EXPORT int ibv_destroy_ah(ibv_ah* ah) {
  return route<&FullProvider::destroy_ah, &Real::ibv_destroy_ah>(ah);
}

BEELINE_EXPORT int ibv_init_ah_from_wc(ibv_context* context, std::uint8_t port, ibv_wc* wc, ibv_grh* grh,
                                       ibv_ah_attr* attr) {
  if (auto* provider = owner_of(context)) {
    const int error = answer_to(*provider, context, port, *wc, grh, *attr);
    return error == 0 ? 0 : refuse<int, Refusal::minus_one>(error);
  }
  return only_real<&Real::ibv_init_ah_from_wc, Refusal::minus_one>(context, port, wc, grh, attr);
}

BEELINE_EXPORT ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, std::uint8_t port) {
  if (auto* provider = owner_of(pd)) {
    ibv_ah_attr attr;
    if (const int error = answer_to(*provider, pd->context, port, *wc, grh, attr); error != 0)
      return refuse<ibv_ah*>(error);
    return provider->create_ah(pd, &attr);
  }
  return only_real<&Real::ibv_create_ah_from_wc>(pd, wc, grh, port);
}

// For drivers of hardware that writes Ethernet headers itself; the card leaves them to the kernel.
BEELINE_EXPORT int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr, std::uint8_t* mac,
                                               std::uint16_t* vlan) {
  return only_real<&Real::ibv_resolve_eth_l2_from_gid>(context, attr, mac, vlan);
}

}  // extern "C"
