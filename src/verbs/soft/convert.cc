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
  constexpr unsigned offered = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                               IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED;
  // Hints that change nothing: programs set them freely.
  constexpr unsigned harmless = IBV_ACCESS_HUGETLB | static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
  if ((flags & ~(offered | harmless)) != 0) return std::nullopt;
  return static_cast<proto::Access>(flags & offered);  // the bits are the same
}

unsigned from_access(proto::Access access) { return static_cast<unsigned>(access); }

std::optional<proto::QpType> to_service(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return proto::QpType::rc;
    case IBV_QPT_UC:
      return proto::QpType::uc;
    case IBV_QPT_UD:
      return proto::QpType::ud;
    default:
      return std::nullopt;
  }
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
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return proto::WrOpcode::compare_swap;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return proto::WrOpcode::fetch_add;
    case IBV_WR_SEND_WITH_INV:
      return proto::WrOpcode::send_inv;
    case IBV_WR_LOCAL_INV:
      return proto::WrOpcode::local_inv;
    case IBV_WR_BIND_MW:
      return proto::WrOpcode::bind_mw;
    default:
      return std::nullopt;
  }
}

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

unsigned wc_flags_of(const proto::Completion& completion) {
  unsigned flags = 0;
  if (completion.has_grh) flags |= IBV_WC_GRH;
  if (completion.has_immediate) flags |= IBV_WC_WITH_IMM;
  if (completion.has_invalidated) flags |= IBV_WC_WITH_INV;
  return flags;
}

std::uint8_t service_level_of(const proto::Completion& completion) {
  constexpr std::uint8_t udp = 8;
  constexpr std::uint8_t ipv4 = 2;
  constexpr std::uint8_t ipv6 = 1;
  if (!completion.has_grh) return 0;
  return udp | (completion.grh_is_ipv4 ? ipv4 : ipv6);
}

void from_completion(const proto::Completion& completion, ibv_wc& out) {
  out = {};
  out.wr_id = completion.wr_id;
  out.status = static_cast<ibv_wc_status>(completion.status);  // the values are the same
  out.opcode = from_opcode(completion.opcode);
  out.qp_num = completion.qpn.value;
  out.byte_len = completion.byte_length;
  out.src_qp = completion.source_qpn.value;
  out.wc_flags = wc_flags_of(completion);
  out.sl = service_level_of(completion);
  if (completion.has_immediate) out.imm_data = htonl(completion.immediate);
  if (completion.has_invalidated) out.invalidated_rkey = completion.invalidated.value;
}

}  // namespace beeline::verbs::soft
