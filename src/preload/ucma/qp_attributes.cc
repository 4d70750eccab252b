#include "preload/ucma/qp_attributes.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>

namespace beeline::preload::ucma {
namespace {

constexpr std::uint8_t port_number = 1, hop_limit = 64;

// How many READs and atomics go one way: what this side has agreed to as the passive one, and what the peer
// offers before that. As the active one, what the peer says, and never more than this side asked for: Linux
// passes on in a REP whatever its program said, more than a card here may have.
std::uint8_t depth(const Identifier& identifier, std::uint8_t own, std::uint8_t peers) {
  if (!identifier.passive) return std::min(own, peers);
  return identifier.stage == Stage::connected ? own : peers;
}
std::uint8_t responder_resources(const Identifier& identifier) {
  return depth(identifier, identifier.local_end.responder_resources, identifier.remote_end.initiator_depth);
}
std::uint8_t initiator_depth(const Identifier& identifier) {
  return depth(identifier, identifier.local_end.initiator_depth, identifier.remote_end.responder_resources);
}

bool is_reliable(const Identifier& identifier) { return identifier.offer == proto::cm::Offer::reliable; }

void fill_init(const Identifier& identifier, ib_uverbs_qp_attr& attr) {
  attr.qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  attr.port_num = port_number;
  if (identifier.is_datagram()) {
    attr.qp_attr_mask |= IBV_QP_QKEY;
    attr.qkey = wire::cm::udp_qkey;
    return;
  }
  attr.qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
  if (!identifier.connection) return;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (responder_resources(identifier) != 0)
    attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
}

void fill_rtr(const Identifier& identifier, ib_uverbs_qp_attr& attr) {
  attr.qp_attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  attr.ah_attr = address_of_peer(identifier);
  attr.path_mtu = identifier.remote_end.path_mtu;
  attr.dest_qp_num = identifier.remote_end.qpn.value;
  // "Starting PSN" is where the sender of the message wants the other to start, as captured sessions of the
  // kernel show.
  attr.rq_psn = identifier.local_end.psn.value;
  if (!is_reliable(identifier)) return;
  attr.qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  attr.max_dest_rd_atomic = responder_resources(identifier);
}

void fill_rts(const Identifier& identifier, ib_uverbs_qp_attr& attr) {
  attr.qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  attr.sq_psn = identifier.remote_end.psn.value;
  if (!is_reliable(identifier)) return;
  attr.qp_attr_mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  attr.timeout = identifier.remote_end.ack_timeout;
  attr.retry_cnt = identifier.passive ? identifier.remote_end.retry_count : identifier.local_end.retry_count;
  attr.rnr_retry = identifier.remote_end.rnr_retry_count;
  attr.max_rd_atomic = initiator_depth(identifier);
}

}  // namespace

ib_uverbs_ah_attr address_of_peer(const Identifier& identifier) {
  ib_uverbs_ah_attr address{};
  std::memcpy(address.grh.dgid, identifier.destination.address.bytes.data(), sizeof address.grh.dgid);
  address.grh.sgid_index = identifier.place ? identifier.place->gid_index : std::uint8_t{0};
  address.grh.hop_limit = hop_limit;
  address.grh.traffic_class = identifier.type_of_service;
  address.is_global = 1;
  address.port_num = port_number;
  return address;
}

std::optional<ib_uverbs_qp_attr> qp_attributes(const Identifier& identifier, std::uint32_t state) {
  if (!identifier.place) return std::nullopt;
  ib_uverbs_qp_attr attr{};
  attr.qp_state = state;
  if (state == IBV_QPS_INIT) {
    fill_init(identifier, attr);
    return attr;
  }
  const bool knows_peer = identifier.connection && identifier.remote_end.qpn != Qpn{};
  if (identifier.is_datagram() || !knows_peer) return std::nullopt;
  if (state == IBV_QPS_RTR)
    fill_rtr(identifier, attr);
  else if (state == IBV_QPS_RTS)
    fill_rts(identifier, attr);
  else
    return std::nullopt;
  return attr;
}

}  // namespace beeline::preload::ucma
