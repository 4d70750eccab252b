// What the card says about itself.

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "verbs/soft/objects.h"

namespace beeline::verbs::soft {
namespace {

int as_int(std::uint64_t value) { return static_cast<int>(std::min<std::uint64_t>(value, INT_MAX)); }

// An identifier that nobody was assigned: the bit for "locally administered" is set (IEEE 802, clause 8).
constexpr std::uint32_t vendor = 0x02BEE0;

constexpr unsigned capabilities = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_RC_RNR_NAK_GEN |
                                  IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_UD_AV_PORT_ENFORCE |
                                  IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;

}  // namespace

int query_device(ibv_context* context, ibv_device_attr* out) {
  *out = {};
  const Context* owner = context_of(context);
  const nic::Limits& limits = owner->card->limits();
  std::strncpy(out->fw_ver, "beeline-0.1", sizeof out->fw_ver - 1);
  out->node_guid = out->sys_image_guid = htobe64(owner->device().guid);
  out->vendor_id = vendor;
  out->vendor_part_id = out->hw_ver = 1;
  out->max_mr_size = UINT64_MAX;
  out->page_size_cap = 0xFFFF'F000;  // any page size from 4 KiB
  out->max_qp = as_int(limits.queue_pairs);
  out->max_qp_wr = as_int(limits.queue_depth);
  out->device_cap_flags = capabilities;
  out->max_sge = out->max_sge_rd = as_int(limits.sges);
  out->max_cq = as_int(limits.completion_queues);
  out->max_cqe = as_int(limits.cq_depth);
  out->max_mr = as_int(limits.regions);
  out->max_pd = as_int(limits.domains);
  out->max_mw = as_int(limits.windows);
  out->max_ah = as_int(limits.address_handles);
  out->max_srq = as_int(limits.shared_queues);
  out->max_srq_wr = as_int(limits.shared_queue_depth);
  out->max_srq_sge = as_int(limits.sges);
  out->max_qp_rd_atom = out->max_qp_init_rd_atom = as_int(limits.reads_per_qp);
  out->max_res_rd_atom = as_int(std::uint64_t{limits.reads_per_qp} * limits.queue_pairs);
  out->atomic_cap = IBV_ATOMIC_HCA;  // among operations of this card, not with the processor's
  out->max_pkeys = 1;
  out->local_ca_ack_delay = 15;  // 4.096 us * 2^15 = 134 ms: a process may lose the processor
  out->phys_port_cnt = 1;
  return 0;
}

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out) {
  if (port != 1) return EINVAL;
  *out = {};
  const nic::Device device = context_of(context)->device();
  out->state = device.active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  out->phys_state = device.active ? 5 : 3;  // link up, disabled
  out->max_mtu = mtu_enum(device.max_mtu_bytes);
  out->active_mtu = mtu_enum(device.active_mtu_bytes);
  out->gid_tbl_len = static_cast<int>(device.gids.size());
  out->port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  out->max_msg_sz = proto::max_message_bytes;
  out->pkey_tbl_len = 1;
  out->active_width = 1;  // 1X at 2.5 Gb/s: what the specification has for "unknown"; no rate is promised
  out->active_speed = 1;
  out->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}

int query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* out) {
  const nic::Device device = context_of(context)->device();
  if (port != 1 || index >= device.gids.size()) return EINVAL;
  if (device.gids[index].is_zero()) return ENODATA;
  *out = {from_gid(device.gids[index]), index, port, IBV_GID_TYPE_ROCE_V2,
          static_cast<std::uint32_t>(device.interface.index)};
  return 0;
}

}  // namespace beeline::verbs::soft
