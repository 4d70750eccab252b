// Posting and polling: no allocation, no lock of our own.

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "verbs/soft/convert.h"
#include "verbs/soft/objects.h"

namespace beeline::verbs::soft {
namespace {

using Sges = std::array<proto::Sge, proto::max_sge>;

// False when there are more than any queue pair may have.
bool convert_sges(const ibv_sge* list, int count, Sges& out, std::span<const proto::Sge>& filled) {
  if (count < 0 || static_cast<std::size_t>(count) > out.size()) return false;
  for (int i = 0; i < count; ++i) out[i] = {list[i].addr, list[i].length, Key{list[i].lkey}};
  filled = std::span(out).first(count);
  return true;
}

int post_one(Qp* qp, const ibv_send_wr& wr) {
  const auto opcode = to_opcode(wr.opcode);
  if (!opcode) return EOPNOTSUPP;
  Sges sges;
  proto::SendWr request;
  if (!convert_sges(wr.sg_list, wr.num_sge, sges, request.sges)) return EINVAL;
  request.wr_id = wr.wr_id;
  request.opcode = *opcode;
  request.signaled = (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  request.solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  request.fence = (wr.send_flags & IBV_SEND_FENCE) != 0;
  request.inline_data = (wr.send_flags & IBV_SEND_INLINE) != 0;
  request.immediate = ntohl(wr.imm_data);
  request.remote_address = wr.wr.rdma.remote_addr;
  request.rkey = Key{wr.wr.rdma.rkey};
  return to_errno(context_of(qp->context)->card->post_send(qp->pair, request));
}

int post_one(Qp* qp, const ibv_recv_wr& wr) {
  Sges sges;
  proto::RecvWr request;
  if (!convert_sges(wr.sg_list, wr.num_sge, sges, request.sges)) return EINVAL;
  request.wr_id = wr.wr_id;
  return to_errno(context_of(qp->context)->card->post_recv(qp->pair, request));
}

template <class Wr>
int post_list(ibv_qp* qp, Wr* wr, Wr** bad) {
  for (; wr != nullptr; wr = wr->next)
    if (const int error = post_one(static_cast<Qp*>(qp), *wr); error != 0) {
      *bad = wr;
      return error;
    }
  return 0;
}

}  // namespace

const ContextOps context_ops = {
    .query_device = query_device,
    .query_port = query_port,
    .poll_cq = poll_cq,
    .req_notify_cq = req_notify_cq,
    .post_send = post_send,
    .post_recv = post_recv,
};

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) { return post_list(qp, wr, bad); }
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) { return post_list(qp, wr, bad); }

int poll_cq(ibv_cq* cq, int count, ibv_wc* out) {
  nic::Card* card = context_of(cq->context)->card;
  std::array<proto::Completion, 32> batch;
  int taken = 0;
  while (taken < count) {
    const int wanted = std::min(count - taken, static_cast<int>(batch.size()));
    const int got = card->poll_cq(static_cast<Cq*>(cq)->queue, std::span(batch).first(wanted));
    if (got < 0) return taken > 0 ? taken : -1;
    for (int i = 0; i < got; ++i) from_completion(batch[i], out[taken + i]);
    taken += got;
    if (got < wanted) break;
  }
  return taken;
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  context_of(cq->context)->card->arm_cq(static_cast<Cq*>(cq)->queue, solicited_only != 0);
  return 0;
}

}  // namespace beeline::verbs::soft
