#include <fmt/format.h>

#include "verbs/verbs.h"

namespace beeline::verbs {
namespace {

// What usually lies behind a status, from what users reported and what the specification
// says (IBTA vol. 1, 11.6.2).
struct StatusText {
  ibv_wc_status status;
  const char* name;
  const char* cause;
};
constexpr StatusText texts[] = {
    {IBV_WC_SUCCESS, "success", "nothing is wrong"},
    {IBV_WC_LOC_LEN_ERR, "local length error", "a message was longer than the receive buffer posted for it"},
    {IBV_WC_LOC_QP_OP_ERR, "local queue pair operation error",
     "the work request is not legal on this queue pair"},
    {IBV_WC_LOC_EEC_OP_ERR, "local EE context operation error", "an internal error of the device"},
    {IBV_WC_LOC_PROT_ERR, "local protection error",
     "local memory of the request is not registered, is out of bounds, or went away"},
    {IBV_WC_WR_FLUSH_ERR, "flushed",
     "the queue pair was in its error state already; the first failed completion says why"},
    {IBV_WC_MW_BIND_ERR, "memory window bind error", "the window does not fit the region or its rights"},
    {IBV_WC_BAD_RESP_ERR, "bad response", "the peer answered with a packet that fits no request"},
    {IBV_WC_LOC_ACCESS_ERR, "local access error",
     "a WRITE with immediate arrived that this side's rights forbid"},
    {IBV_WC_REM_INV_REQ_ERR, "remote invalid request",
     "the peer has no receive buffer of that size, or does not allow this operation"},
    {IBV_WC_REM_ACCESS_ERR, "remote access error", "the remote rkey, bounds or access flags forbid it"},
    {IBV_WC_REM_OP_ERR, "remote operation error", "the peer could not carry it out; its own log says why"},
    {IBV_WC_RETRY_EXC_ERR, "retry exceeded",
     "the peer did not answer: it is gone, its address or GID is wrong, or UDP port 4791 is blocked on the "
     "way"},
    {IBV_WC_RNR_RETRY_EXC_ERR, "receiver not ready", "the peer posted no receive buffer in time"},
    {IBV_WC_LOC_RDD_VIOL_ERR, "local RDD violation", "reliable datagram domains do not match"},
    {IBV_WC_REM_INV_RD_REQ_ERR, "remote invalid RD request", "the peer refused a reliable datagram"},
    {IBV_WC_REM_ABORT_ERR, "remote abort", "the peer aborted the operation"},
    {IBV_WC_INV_EECN_ERR, "invalid EE context number", "an internal error of the device"},
    {IBV_WC_INV_EEC_STATE_ERR, "invalid EE context state", "an internal error of the device"},
    {IBV_WC_FATAL_ERR, "fatal error", "the device failed"},
    {IBV_WC_RESP_TIMEOUT_ERR, "response timeout", "the peer did not answer in time"},
    {IBV_WC_GENERAL_ERR, "general error", "the transport failed in a way that has no other name"},
    {IBV_WC_TM_ERR, "tag matching error", "a tag matching operation failed"},
    {IBV_WC_TM_RNDV_INCOMPLETE, "rendezvous incomplete", "software must finish the rendezvous"},
};

}  // namespace

std::string describe(ibv_wc_status status) {
  for (const StatusText& text : texts)
    if (text.status == status)
      return fmt::format("{} ({}): {}", text.name, static_cast<int>(status), text.cause);
  return fmt::format("unknown completion status {}", static_cast<int>(status));
}

}  // namespace beeline::verbs
