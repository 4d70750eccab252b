// Queue pairs: made, changed, asked and destroyed.

#include <algorithm>
#include <cerrno>

#include "verbs/soft/soft_provider.h"
#include "verbs/soft/work_builder.h"

namespace beeline::verbs::soft {
namespace {

struct EventRow {
  nic::CardEvent card;
  ibv_event_type verbs;
};
constexpr EventRow events[] = {
    {nic::CardEvent::qp_communication_established, IBV_EVENT_COMM_EST},
    {nic::CardEvent::qp_send_queue_drained, IBV_EVENT_SQ_DRAINED},
    {nic::CardEvent::qp_fatal, IBV_EVENT_QP_FATAL},
    {nic::CardEvent::qp_invalid_request, IBV_EVENT_QP_REQ_ERR},
    {nic::CardEvent::qp_access_violation, IBV_EVENT_QP_ACCESS_ERR},
    {nic::CardEvent::qp_last_request_reached, IBV_EVENT_QP_LAST_WQE_REACHED},
};

void raise_async(void* cookie, nic::CardEvent event) {
  auto* qp = static_cast<Qp*>(cookie);
  for (const EventRow& row : events)
    if (row.card == event) qp->owner->async_events().raise(qp->async, row.verbs);
}

proto::QpLimits to_limits(const ibv_qp_init_attr& attr) {
  proto::QpLimits limits;
  limits.send_depth = attr.cap.max_send_wr;
  limits.receive_depth = attr.cap.max_recv_wr;
  limits.send_sges = attr.cap.max_send_sge;
  limits.receive_sges = attr.cap.max_recv_sge;
  limits.inline_bytes = attr.cap.max_inline_data;
  limits.signal_all = attr.sq_sig_all != 0;
  return limits;
}

// The members that both kinds of attributes begin with.
ibv_qp_init_attr plain(const ibv_qp_init_attr_ex& attr) {
  return {attr.qp_context, attr.send_cq, attr.recv_cq, attr.srq, attr.cap, attr.qp_type, attr.sq_sig_all};
}

// 0, or why the card has no such queue pair.
int check_extras(const ibv_qp_init_attr_ex& attr) {
  constexpr std::uint32_t understood = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
                                       IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  const auto asks = [&attr](std::uint32_t bit) { return (attr.comp_mask & bit) != 0; };
  if ((attr.comp_mask & ~understood) != 0) return EOPNOTSUPP;
  if (!asks(IBV_QP_INIT_ATTR_PD)) return EINVAL;
  if (asks(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr.create_flags != 0) return EOPNOTSUPP;
  if (asks(IBV_QP_INIT_ATTR_MAX_TSO_HEADER) && attr.max_tso_header != 0) return EOPNOTSUPP;
  if (!asks(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) return 0;
  const auto service = to_service(attr.qp_type);
  return service && (attr.send_ops_flags & ~WorkBuilder::operations_of(*service)) == 0 ? 0 : EOPNOTSUPP;
}

}  // namespace

int SoftProvider::check_queues(const Pd& pd, const ibv_qp_init_attr& attr) const {
  for (ibv_cq* cq : {attr.send_cq, attr.recv_cq})
    if (!holds(cq) || mine(cq)->owner != pd.owner) return EINVAL;
  if (attr.srq != nullptr && (!holds(attr.srq) || mine(attr.srq)->home != &pd)) return EINVAL;
  return 0;
}

ibv_qp* SoftProvider::create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  if (!holds(pd)) return fail_null<ibv_qp>(EINVAL);
  const auto service = to_service(attr->qp_type);
  if (!service) return fail_null<ibv_qp>(EOPNOTSUPP);
  Pd* home = mine(pd);
  if (const int error = check_queues(*home, *attr); error != 0) return fail_null<ibv_qp>(error);
  // Then the receive queue is not the queue pair's own (ibv_create_qp(3)).
  if (attr->srq != nullptr) attr->cap.max_recv_wr = attr->cap.max_recv_sge = 0;

  auto qp = std::make_unique<Qp>();
  qp->owner = home->owner;
  qp->card = &card_;
  qp->home = home;
  qp->service = *service;
  nic::QpRequest request;
  request.device = home->owner->device_index;
  request.domain = home->id;
  request.send_cq = mine(attr->send_cq)->queue;
  request.receive_cq = mine(attr->recv_cq)->queue;
  request.limits = to_limits(*attr);
  request.type = *service;
  if (attr->srq != nullptr) request.shared_queue = mine(attr->srq)->queue;
  request.events = raise_async;
  request.cookie = qp.get();
  qp->owner->async_events().attach(qp->async);
  const auto pair = card_.create_qp(request);
  if (!pair) {
    qp->owner->async_events().detach(qp->async);
    return fail_null<ibv_qp>(note(pair.error()));
  }
  qp->pair = *pair;
  qp->has_shared_queue = attr->srq != nullptr;
  qp->init = *attr;
  ibv_qp& shown = qp->qp_base;
  shown.qp_context = attr->qp_context;
  shown.pd = pd;
  shown.send_cq = attr->send_cq;
  shown.recv_cq = attr->recv_cq;
  shown.srq = attr->srq;
  shown.qp_num = shown.handle = card_.qpn(*pair).value;
  shown.state = IBV_QPS_RESET;
  shown.qp_type = attr->qp_type;
  pthread_mutex_init(&shown.mutex, nullptr);
  pthread_cond_init(&shown.cond, nullptr);
  return adopt(std::move(qp), home->owner);
}

ibv_qp* SoftProvider::create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  if (!holds(context)) return fail_null<ibv_qp>(EINVAL);
  if (const int error = check_extras(*attr); error != 0) return fail_null<ibv_qp>(error);
  if (!holds(attr->pd) || mine(attr->pd)->owner != context_of(context)) return fail_null<ibv_qp>(EINVAL);
  ibv_qp_init_attr basic = plain(*attr);
  ibv_qp* qp = create_qp(attr->pd, &basic);
  if (qp == nullptr) return nullptr;
  attr->cap = basic.cap;
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0)
    mine(qp)->builder = std::make_unique<WorkBuilder>(*mine(qp), attr->send_ops_flags);
  return qp;
}

int SoftProvider::modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  if (!holds(qp)) return EINVAL;
  const auto change = to_modification(*attr, mask);
  if (!change) return note(change.error());
  const auto modified = card_.modify_qp(mine(qp)->pair, change->attributes, change->mask,
                                        (mask & IBV_QP_AV) != 0 ? &change->address : nullptr);
  if (!modified) return note(modified.error());
  if ((mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
  return 0;
}

// Everything there is, whatever the mask: it may only narrow the question (ibv_query_qp(3)).
int SoftProvider::query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  if (!holds(qp)) return EINVAL;
  nic::AddressVector address;
  from_attributes(card_.query_qp(mine(qp)->pair, &address), address, *attr);
  attr->cap = mine(qp)->init.cap;
  qp->state = attr->qp_state;
  *init = mine(qp)->init;
  return 0;
}

int SoftProvider::destroy_qp(ibv_qp* qp) {
  return release(qp, [this](Qp& mine) {
    mine.alive.end();                              // who posts from another thread is refused from here on
    auto destroyed = card_.destroy_qp(mine.pair);  // from here on nobody raises its events
    if (!destroyed) return destroyed;
    ibv_qp& shown = mine.qp_base;
    const std::uint32_t delivered = mine.owner->async_events().detach(mine.async);
    await_async(shown.mutex, shown.cond, shown.events_completed, delivered);
    pthread_cond_destroy(&shown.cond);
    pthread_mutex_destroy(&shown.mutex);
    return destroyed;
  });
}

// Packets are placed in order, but the copy of one packet promises no order of its bytes.
int SoftProvider::query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) { return 0; }

// On the wire it would have to be waited for by polling the card, which sees a message as fast.
bool SoftProvider::writes_last_word_last(ibv_qp* qp) { return holds(qp) && card_.is_local(mine(qp)->pair); }

ibv_qp_ex* SoftProvider::qp_to_qp_ex(ibv_qp* qp) {
  return holds(qp) && mine(qp)->builder != nullptr ? mine(qp) : nullptr;
}

}  // namespace beeline::verbs::soft
