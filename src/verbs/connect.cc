// RESET -> INIT -> RTR -> RTS.

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "verbs/common/device_shell.h"
#include "verbs/verbs.h"

namespace beeline::verbs {
namespace {

Result<void> modify(Provider& provider, ibv_qp* qp, ibv_qp_attr& attr, int mask, const char* state,
                    const std::string& ends) {
  const int error = provider.modify_qp(qp, &attr, mask | IBV_QP_STATE);
  if (error != 0) {
    auto failure = fail_errno(error, fmt::format("bringing the queue pair {} to {}", ends, state));
    if (const std::string why = provider.why(); !why.empty()) failure.value().message += ": " + why;
    return failure;
  }
  return {};
}

Result<void> to_init(Provider& provider, ibv_qp* qp, const ConnectOptions& options, const std::string& ends) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = options.port;
  attr.qp_access_flags = static_cast<unsigned>(options.access);
  return modify(provider, qp, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT", ends);
}

Result<void> to_rtr(Provider& provider, ibv_qp* qp, const QpAddress& local, const QpAddress& remote,
                    const ConnectOptions& options, const std::string& ends) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = mtu_enum(std::min(local.mtu_bytes, remote.mtu_bytes));
  attr.dest_qp_num = remote.qpn;
  attr.rq_psn = remote.psn;
  attr.max_dest_rd_atomic = local.reads;
  attr.min_rnr_timer = options.min_rnr_timer;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = options.port;
  attr.ah_attr.grh.dgid = from_gid(remote.gid);
  attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(options.gid_index);
  attr.ah_attr.grh.hop_limit = 64;
  attr.ah_attr.grh.traffic_class = options.traffic_class;
  return modify(provider, qp, attr,
                IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                    IBV_QP_MIN_RNR_TIMER,
                "RTR", ends);
}

Result<void> to_rts(Provider& provider, ibv_qp* qp, const QpAddress& local, const QpAddress& remote,
                    const ConnectOptions& options, const std::string& ends) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = options.timeout;
  attr.retry_cnt = options.retry_count;
  attr.rnr_retry = options.rnr_retry;
  attr.sq_psn = local.psn;
  // As many as this side can have outstanding and the other side serves at once.
  const std::uint8_t mine = options.initiator_reads != 0 ? options.initiator_reads : local.reads;
  attr.max_rd_atomic = std::min(mine, remote.reads);
  return modify(
      provider, qp, attr,
      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, "RTS",
      ends);
}

}  // namespace

Result<void> connect_rc(Provider& provider, ibv_qp* qp, const QpAddress& local, const QpAddress& remote,
                        const ConnectOptions& options) {
  // A link-local address means nothing on another link, and a loopback one nothing on another host.
  if (local.gid.is_loopback() != remote.gid.is_loopback())
    return fail(Errc::invalid_argument, "GIDs {} and {} cannot reach each other: one is a loopback address",
                to_string(local.gid), to_string(remote.gid));
  if (local.gid.is_v4() != remote.gid.is_v4())
    return fail(
        Errc::invalid_argument,
        "GIDs {} and {} cannot reach each other: one is IPv4, the other IPv6; give one end a GID index "
        "of the other's family",
        to_string(local.gid), to_string(remote.gid));
  const std::string ends = fmt::format("{} -> {}", to_string(local.gid), to_string(remote.gid));
  BEELINE_TRY_VOID(to_init(provider, qp, options, ends));
  BEELINE_TRY_VOID(to_rtr(provider, qp, local, remote, options, ends));
  BEELINE_TRY_VOID(to_rts(provider, qp, local, remote, options, ends));
  logger()->debug("queue pair 0x{:06x} connected to 0x{:06x}: GID {}, path MTU {}, PSN 0x{:06x} and 0x{:06x}",
                  local.qpn, remote.qpn, ends, std::min(local.mtu_bytes, remote.mtu_bytes), local.psn,
                  remote.psn);
  return {};
}

}  // namespace beeline::verbs
