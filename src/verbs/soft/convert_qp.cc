// Attributes of queue pairs, between the verbs header and the card.

#include <cerrno>

#include "verbs/common/device_shell.h"
#include "verbs/soft/convert.h"

namespace beeline::verbs::soft {

namespace {
struct StateRow {
  ibv_qp_state verbs;
  proto::QpState proto;
};
constexpr StateRow states[] = {
    {IBV_QPS_RESET, proto::QpState::reset}, {IBV_QPS_INIT, proto::QpState::init},
    {IBV_QPS_RTR, proto::QpState::rtr},     {IBV_QPS_RTS, proto::QpState::rts},
    {IBV_QPS_SQD, proto::QpState::sqd},     {IBV_QPS_SQE, proto::QpState::sqe},
    {IBV_QPS_ERR, proto::QpState::err},
};
}  // namespace

std::optional<proto::QpState> to_state(ibv_qp_state state) {
  for (const StateRow& row : states)
    if (row.verbs == state) return row.proto;
  return std::nullopt;
}

ibv_qp_state from_state(proto::QpState state) {
  for (const StateRow& row : states)
    if (row.proto == state) return row.verbs;
  return IBV_QPS_UNKNOWN;
}

namespace {

// All but resizing (cap), the alternate path and its migration, and rate limits.
constexpr int mask_offered = IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY |
                             IBV_QP_ACCESS_FLAGS | IBV_QP_QKEY | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_AV |
                             IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_DEST_QPN;
static_assert(proto::attr::state == IBV_QP_STATE && proto::attr::address_vector == IBV_QP_AV &&
              proto::attr::destination_qp == IBV_QP_DEST_QPN && proto::attr::sq_psn == IBV_QP_SQ_PSN);

tl::unexpected<Error> invalid(std::string_view attribute, unsigned value) {
  return fail(Errc::invalid_argument, "{} {:#x} has no meaning for this card", attribute, value);
}

Result<void> convert_states(const ibv_qp_attr& attr, int mask, proto::QpAttr& out) {
  if (mask & IBV_QP_STATE) {
    const auto state = to_state(attr.qp_state);
    if (!state) return invalid("qp_state", static_cast<unsigned>(attr.qp_state));
    out.state = *state;
  }
  if (mask & IBV_QP_CUR_STATE) {
    const auto state = to_state(attr.cur_qp_state);
    if (!state) return invalid("cur_qp_state", attr.cur_qp_state);
    out.current_state = *state;
  }
  return {};
}

// Fields of the wire are narrower than those of the struct.
Result<void> check_ranges(const ibv_qp_attr& attr, int mask) {
  if ((mask & IBV_QP_PORT) && attr.port_num != 1) return invalid("port_num", attr.port_num);
  if ((mask & IBV_QP_PKEY_INDEX) && attr.pkey_index != 0) return invalid("pkey_index", attr.pkey_index);
  if ((mask & IBV_QP_TIMEOUT) && attr.timeout > 31) return invalid("timeout", attr.timeout);
  if ((mask & IBV_QP_RETRY_CNT) && attr.retry_cnt > 7) return invalid("retry_cnt", attr.retry_cnt);
  if ((mask & IBV_QP_RNR_RETRY) && attr.rnr_retry > 7) return invalid("rnr_retry", attr.rnr_retry);
  if ((mask & IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > 31)
    return invalid("min_rnr_timer", attr.min_rnr_timer);
  if ((mask & IBV_QP_DEST_QPN) && attr.dest_qp_num > 0xFFFFFF)
    return invalid("dest_qp_num", attr.dest_qp_num);
  return {};
}

}  // namespace

Result<nic::AddressVector> to_address(const ibv_ah_attr& attr) {
  if (attr.is_global == 0)
    return fail(Errc::invalid_argument,
                "an address without a GID (is_global is 0): RoCE has no other addresses; give the program a "
                "GID index (ibv_*_pingpong: -g 0)");
  if (attr.port_num != 0 && attr.port_num != 1) return invalid("port_num of the address", attr.port_num);
  nic::AddressVector out;
  out.gid_index = attr.grh.sgid_index;
  out.destination = to_gid(attr.grh.dgid);
  out.traffic_class = attr.grh.traffic_class;
  out.hop_limit = attr.grh.hop_limit == 0 ? 64 : attr.grh.hop_limit;
  return out;
}

Result<Modification> to_modification(const ibv_qp_attr& attr, int mask) {
  if (const int foreign = mask & ~mask_offered; foreign != 0)
    return fail(Errc::unsupported, "attributes that the card does not change (mask {:#x})", foreign);
  BEELINE_TRY_VOID(check_ranges(attr, mask));
  Modification out;
  proto::QpAttr& to = out.attributes;
  out.mask = static_cast<std::uint32_t>(mask);
  BEELINE_TRY_VOID(convert_states(attr, mask, to));
  if (mask & IBV_QP_AV) {
    BEELINE_TRY(out.address, to_address(attr.ah_attr));
  }
  if (mask & IBV_QP_PATH_MTU) {
    to.path_mtu_bytes = mtu_bytes(attr.path_mtu);
    if (to.path_mtu_bytes == 0) return invalid("path_mtu", attr.path_mtu);
  }
  if (mask & IBV_QP_ACCESS_FLAGS) {
    const auto access = to_access(attr.qp_access_flags);
    if (!access) return invalid("qp_access_flags", attr.qp_access_flags);
    to.access = *access;
  }
  to.qkey = attr.qkey;
  to.notify_drained = attr.en_sqd_async_notify != 0;
  to.destination = Qpn{attr.dest_qp_num};
  to.rq_psn = Psn{attr.rq_psn & Psn::mask};
  to.sq_psn = Psn{attr.sq_psn & Psn::mask};
  to.max_rd_atomic = attr.max_rd_atomic;
  to.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  to.min_rnr_timer = attr.min_rnr_timer;
  to.timeout = attr.timeout;
  to.retry_count = attr.retry_cnt;
  to.rnr_retry = attr.rnr_retry;
  return out;
}

void from_attributes(const proto::QpAttr& attributes, const nic::AddressVector& address, ibv_qp_attr& out) {
  out = {};
  out.qp_state = out.cur_qp_state = from_state(attributes.state);
  out.path_mtu = mtu_enum(attributes.path_mtu_bytes);
  out.path_mig_state = IBV_MIG_MIGRATED;
  out.rq_psn = attributes.rq_psn.value;
  out.sq_psn = attributes.sq_psn.value;
  out.dest_qp_num = attributes.destination.value;
  out.qp_access_flags = from_access(attributes.access);
  out.ah_attr.is_global = 1;
  out.ah_attr.port_num = 1;
  out.ah_attr.grh.dgid = from_gid(address.destination);
  out.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(address.gid_index);
  out.ah_attr.grh.hop_limit = address.hop_limit;
  out.ah_attr.grh.traffic_class = address.traffic_class;
  out.max_rd_atomic = attributes.max_rd_atomic;
  out.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
  out.min_rnr_timer = attributes.min_rnr_timer;
  out.port_num = 1;
  out.timeout = attributes.timeout;
  out.retry_cnt = attributes.retry_count;
  out.rnr_retry = attributes.rnr_retry;
  out.qkey = attributes.qkey;
  out.en_sqd_async_notify = attributes.notify_drained ? 1 : 0;
}

}  // namespace beeline::verbs::soft
