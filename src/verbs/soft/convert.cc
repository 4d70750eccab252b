#include "verbs/soft/convert.h"

#include <arpa/inet.h>

#include <cerrno>

#include "verbs/common/device_shell.h"

namespace beeline::verbs::soft {

int to_errno(Errc code) {
  switch (code) {
    case Errc::invalid_argument:
      return EINVAL;
    case Errc::not_found:
      return ENODEV;
    case Errc::in_use:
      return EBUSY;
    case Errc::permission:
      return EACCES;
    case Errc::timed_out:
      return ETIMEDOUT;
    case Errc::unsupported:
      return EOPNOTSUPP;
    case Errc::resource_exhausted:
      return ENOMEM;
    case Errc::protocol:
      return EPROTO;
    case Errc::peer_lost:
      return ECONNRESET;
    case Errc::aborted:
      return ECANCELED;
    case Errc::io:
    case Errc::mismatch:
    case Errc::internal:
      break;
  }
  return EIO;
}

int to_errno(proto::PostResult result) {
  switch (result) {
    case proto::PostResult::ok:
      return 0;
    case proto::PostResult::queue_full:
      return ENOMEM;
    case proto::PostResult::too_many_sges:
    case proto::PostResult::too_long:
    case proto::PostResult::inline_too_long:
    case proto::PostResult::bad_state:
    case proto::PostResult::invalid:
      break;
  }
  return EINVAL;
}

std::optional<proto::Access> to_access(unsigned flags) {
  constexpr unsigned offered = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  // Rights that nobody can use here, and hints that change nothing: programs set them freely.
  constexpr unsigned harmless =
      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_HUGETLB | static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
  if ((flags & ~(offered | harmless)) != 0) return std::nullopt;
  return static_cast<proto::Access>(flags & offered);  // the bits are the same
}

unsigned from_access(proto::Access access) { return static_cast<unsigned>(access); }

namespace {
struct StateRow {
  ibv_qp_state verbs;
  proto::QpState proto;
};
constexpr StateRow states[] = {
    {IBV_QPS_RESET, proto::QpState::reset}, {IBV_QPS_INIT, proto::QpState::init},
    {IBV_QPS_RTR, proto::QpState::rtr},     {IBV_QPS_RTS, proto::QpState::rts},
    {IBV_QPS_SQE, proto::QpState::sqe},     {IBV_QPS_ERR, proto::QpState::err},
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

constexpr int mask_offered = IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |
                             IBV_QP_PORT | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                             IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC |
                             IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                             IBV_QP_DEST_QPN;
static_assert(proto::attr::state == IBV_QP_STATE && proto::attr::address_vector == IBV_QP_AV &&
              proto::attr::destination_qp == IBV_QP_DEST_QPN && proto::attr::sq_psn == IBV_QP_SQ_PSN);

int convert_states(const ibv_qp_attr& attr, int mask, proto::QpAttr& out) {
  if (mask & IBV_QP_STATE) {
    const auto state = to_state(attr.qp_state);
    if (!state) return EINVAL;
    out.state = *state;
  }
  if (mask & IBV_QP_CUR_STATE) {
    const auto state = to_state(attr.cur_qp_state);
    if (!state) return EINVAL;
    out.current_state = *state;
  }
  return 0;
}

int convert_address(const ibv_ah_attr& attr, nic::AddressVector& out) {
  if (attr.is_global == 0) return EINVAL;  // RoCE addresses are GIDs
  if (attr.port_num != 0 && attr.port_num != 1) return EINVAL;
  out.gid_index = attr.grh.sgid_index;
  out.destination = to_gid(attr.grh.dgid);
  out.traffic_class = attr.grh.traffic_class;
  out.hop_limit = attr.grh.hop_limit == 0 ? 64 : attr.grh.hop_limit;
  return 0;
}

// Fields of the wire are narrower than those of the struct.
bool fits(const ibv_qp_attr& attr, int mask) {
  if ((mask & IBV_QP_PORT) && attr.port_num != 1) return false;
  if ((mask & IBV_QP_PKEY_INDEX) && attr.pkey_index != 0) return false;
  if ((mask & IBV_QP_TIMEOUT) && attr.timeout > 31) return false;
  if ((mask & IBV_QP_RETRY_CNT) && attr.retry_cnt > 7) return false;
  if ((mask & IBV_QP_RNR_RETRY) && attr.rnr_retry > 7) return false;
  if ((mask & IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > 31) return false;
  if ((mask & IBV_QP_DEST_QPN) && attr.dest_qp_num > 0xFFFFFF) return false;
  return true;
}

}  // namespace

int to_modification(const ibv_qp_attr& attr, int mask, Modification& out) {
  if ((mask & ~mask_offered) != 0) return EOPNOTSUPP;
  if (!fits(attr, mask)) return EINVAL;
  proto::QpAttr& to = out.attributes;
  out.mask = static_cast<std::uint32_t>(mask);
  if (const int error = convert_states(attr, mask, to); error != 0) return error;
  if (mask & IBV_QP_AV) {
    if (const int error = convert_address(attr.ah_attr, out.address); error != 0) return error;
  }
  if (mask & IBV_QP_PATH_MTU) {
    to.path_mtu_bytes = mtu_bytes(attr.path_mtu);
    if (to.path_mtu_bytes == 0) return EINVAL;
  }
  if (mask & IBV_QP_ACCESS_FLAGS) {
    const auto access = to_access(attr.qp_access_flags);
    if (!access) return EINVAL;
    to.access = *access;
  }
  to.destination = Qpn{attr.dest_qp_num};
  to.rq_psn = Psn{attr.rq_psn & Psn::mask};
  to.sq_psn = Psn{attr.sq_psn & Psn::mask};
  to.max_rd_atomic = attr.max_rd_atomic;
  to.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  to.min_rnr_timer = attr.min_rnr_timer;
  to.timeout = attr.timeout;
  to.retry_count = attr.retry_cnt;
  to.rnr_retry = attr.rnr_retry;
  return 0;
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
}

std::optional<proto::WrOpcode> to_opcode(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
      return proto::WrOpcode::send;
    case IBV_WR_SEND_WITH_IMM:
      return proto::WrOpcode::send_imm;
    case IBV_WR_RDMA_WRITE:
      return proto::WrOpcode::write;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return proto::WrOpcode::write_imm;
    case IBV_WR_RDMA_READ:
      return proto::WrOpcode::read;
    default:
      return std::nullopt;
  }
}

namespace {
ibv_wc_opcode from_opcode(proto::WcOpcode opcode) {
  switch (opcode) {
    case proto::WcOpcode::send:
      return IBV_WC_SEND;
    case proto::WcOpcode::write:
      return IBV_WC_RDMA_WRITE;
    case proto::WcOpcode::read:
      return IBV_WC_RDMA_READ;
    case proto::WcOpcode::receive:
      return IBV_WC_RECV;
    case proto::WcOpcode::receive_write_imm:
      return IBV_WC_RECV_RDMA_WITH_IMM;
    case proto::WcOpcode::compare_swap:
      return IBV_WC_COMP_SWAP;
    case proto::WcOpcode::fetch_add:
      return IBV_WC_FETCH_ADD;
    case proto::WcOpcode::bind_mw:
      return IBV_WC_BIND_MW;
    case proto::WcOpcode::local_inv:
      return IBV_WC_LOCAL_INV;
  }
  return IBV_WC_SEND;
}
}  // namespace

void from_completion(const proto::Completion& completion, ibv_wc& out) {
  out = {};
  out.wr_id = completion.wr_id;
  out.status = static_cast<ibv_wc_status>(completion.status);  // the values are the same
  out.opcode = from_opcode(completion.opcode);
  out.qp_num = completion.qpn.value;
  out.byte_len = completion.byte_length;
  if (completion.has_immediate) {
    out.wc_flags = IBV_WC_WITH_IMM;
    out.imm_data = htonl(completion.immediate);
  }
}

}  // namespace beeline::verbs::soft
