// Posting and polling: no allocation, no lock of our own.

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "verbs/soft/convert.h"
#include "verbs/soft/requests.h"
#include "verbs/soft/soft_provider.h"

namespace beeline::verbs::soft {
namespace {

constexpr bool is_atomic(proto::WrOpcode opcode) {
  return opcode == proto::WrOpcode::compare_swap || opcode == proto::WrOpcode::fetch_add;
}
// Neither sends nor receives bytes: what the list of pieces holds means nothing.
constexpr bool is_local(proto::WrOpcode opcode) {
  return opcode == proto::WrOpcode::local_inv || opcode == proto::WrOpcode::bind_mw;
}

// `wr.wr` and the immediate are unions: which member means something depends on operation and type.
int set_operands(const Qp& qp, const ibv_send_wr& wr, SendRequest& out) {
  proto::SendWr& request = out.wr;
  if (qp.service == proto::QpType::ud) {
    request.target = &out.target;
    return set_target(qp, wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey, out.target);
  }
  if (is_atomic(request.opcode)) {
    request.remote_address = wr.wr.atomic.remote_addr;
    request.rkey = Key{wr.wr.atomic.rkey};
    const bool swaps = request.opcode == proto::WrOpcode::compare_swap;
    request.compare = swaps ? wr.wr.atomic.compare_add : 0;
    request.swap_or_add = swaps ? wr.wr.atomic.swap : wr.wr.atomic.compare_add;
    return 0;
  }
  if (request.opcode == proto::WrOpcode::bind_mw) {
    request.bind = &out.bind;
    return set_bind(qp, wr.bind_mw.mw, IBV_MW_TYPE_2, wr.bind_mw.rkey, wr.bind_mw.bind_info, out.bind);
  }
  request.remote_address = wr.wr.rdma.remote_addr;
  request.rkey = Key{wr.wr.rdma.rkey};
  return 0;
}

int post_one(Qp& qp, const ibv_send_wr& wr) {
  const auto opcode = to_opcode(wr.opcode);
  if (!opcode) return EOPNOTSUPP;
  Sges sges;
  SendRequest request;
  const auto count = static_cast<std::size_t>(is_local(*opcode) ? 0 : wr.num_sge);
  if (!convert_sges(wr.sg_list, count, sges, request.wr.sges)) return EINVAL;
  request.wr.wr_id = wr.wr_id;
  request.wr.opcode = *opcode;
  request.wr.immediate = ntohl(wr.imm_data);
  request.wr.invalidate = Key{wr.invalidate_rkey};
  if (const int error = set_flags(wr.send_flags, request.wr); error != 0) return error;
  if (const int error = set_operands(qp, wr, request); error != 0) return error;
  return post(qp, request.wr);
}

template <class Post>
int post_receive(const ibv_recv_wr& wr, Post post) {
  Sges sges;
  proto::RecvWr request;
  if (!convert_sges(wr.sg_list, static_cast<std::size_t>(wr.num_sge), sges, request.sges)) return EINVAL;
  request.wr_id = wr.wr_id;
  return to_errno(post(request));
}

int post_one(Qp& qp, const ibv_recv_wr& wr) {
  if (qp.has_shared_queue) return EINVAL;
  return post_receive(wr,
                      [&qp](const proto::RecvWr& request) { return qp.card->post_recv(qp.pair, request); });
}

int post_one(Srq& srq, const ibv_recv_wr& wr) {
  return post_receive(
      wr, [&srq](const proto::RecvWr& request) { return srq.card->post_srq_recv(srq.queue, request); });
}

template <class Queue, class Wr>
int post_list(Queue& queue, Wr* wr, Wr** bad) {
  if (!queue.alive) {
    *bad = wr;
    return EINVAL;
  }
  for (; wr != nullptr; wr = wr->next)
    if (const int error = post_one(queue, *wr); error != 0) {
      *bad = wr;
      return error;
    }
  return 0;
}

}  // namespace

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) { return post_list(*mine(qp), wr, bad); }
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) { return post_list(*mine(qp), wr, bad); }
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) { return post_list(*mine(srq), wr, bad); }

// ibv_bind_mw(3): for windows of type 1, whose next key is the caller's to know at once.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  Qp& pair = *mine(qp);
  if (!pair.alive || !pair.owner->provider->holds(mw)) return EINVAL;
  SendRequest request;
  request.wr.wr_id = bind->wr_id;
  request.wr.opcode = proto::WrOpcode::bind_mw;
  request.wr.bind = &request.bind;
  const std::uint32_t new_rkey = ibv_inc_rkey(mw->rkey);
  if (const int error = set_flags(bind->send_flags & ~unsigned{IBV_SEND_INLINE}, request.wr); error != 0)
    return error;
  if (const int error = set_bind(pair, mw, IBV_MW_TYPE_1, new_rkey, bind->bind_info, request.bind);
      error != 0)
    return error;
  if (const int error = post(pair, request.wr); error != 0) return error;
  mw->rkey = new_rkey;
  return 0;
}

int poll_cq(ibv_cq* cq, int count, ibv_wc* out) {
  Cq& queue = *mine(cq);
  if (!queue.alive) return -1;
  std::array<proto::Completion, 32> batch;
  int taken = 0;
  while (taken < count) {
    const int wanted = std::min(count - taken, static_cast<int>(batch.size()));
    const int got =
        queue.card->poll_cq(queue.queue, std::span(batch).first(static_cast<std::size_t>(wanted)));
    if (got < 0) return taken > 0 ? taken : -1;
    for (int i = 0; i < got; ++i) from_completion(batch[static_cast<std::size_t>(i)], out[taken + i]);
    taken += got;
    if (got < wanted) break;
  }
  return taken;
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  Cq& queue = *mine(cq);
  if (!queue.alive) return EINVAL;
  queue.card->arm_cq(queue.queue, solicited_only != 0);
  return 0;
}

}  // namespace beeline::verbs::soft
