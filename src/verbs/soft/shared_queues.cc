// Shared receive queues.

#include <cerrno>

#include "verbs/soft/soft_provider.h"

namespace beeline::verbs::soft {
namespace {

void raise_async(void* cookie, nic::CardEvent) {
  auto* srq = static_cast<Srq*>(cookie);
  srq->owner->async_events().raise(srq->async, IBV_EVENT_SRQ_LIMIT_REACHED);
}

}  // namespace

ibv_srq* SoftProvider::create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  const nic::Limits& limits = card_.limits();
  if (!holds(pd) || attr->attr.max_wr == 0 || attr->attr.max_wr > limits.shared_queue_depth ||
      attr->attr.max_sge > limits.sges)
    return fail_null<ibv_srq>(EINVAL);
  auto srq = std::make_unique<Srq>();
  srq->owner = mine(pd)->owner;
  srq->card = &card_;
  srq->home = mine(pd);
  srq->depth = attr->attr.max_wr;
  srq->sges = attr->attr.max_sge;
  const auto queue = card_.create_srq(srq->home->id, srq->depth, srq->sges, raise_async, srq.get());
  if (!queue) return fail_null<ibv_srq>(note(queue.error()));
  srq->queue = *queue;
  srq->srq_context = attr->srq_context;
  srq->pd = pd;
  pthread_mutex_init(&srq->mutex, nullptr);
  pthread_cond_init(&srq->cond, nullptr);
  srq->owner->async_events().attach(srq->async);
  return adopt(std::move(srq), mine(pd)->owner);
}

int SoftProvider::modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  if (!holds(srq) || (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;
  if ((mask & IBV_SRQ_MAX_WR) != 0) return EOPNOTSUPP;  // IBV_DEVICE_SRQ_RESIZE is not advertised
  if ((mask & IBV_SRQ_LIMIT) == 0) return 0;
  if (attr->srq_limit > mine(srq)->depth) return EINVAL;
  const auto armed = card_.arm_srq(mine(srq)->queue, attr->srq_limit);
  return armed ? 0 : note(armed.error());
}

int SoftProvider::query_srq(ibv_srq* srq, ibv_srq_attr* out) {
  if (!holds(srq)) return EINVAL;
  *out = {mine(srq)->depth, mine(srq)->sges, card_.srq_limit(mine(srq)->queue)};
  return 0;
}

int SoftProvider::destroy_srq(ibv_srq* srq) {
  return release(srq, [this](Srq& mine) {
    auto destroyed = card_.destroy_srq(mine.queue);  // from here on nobody raises its events
    if (destroyed) {
      const std::uint32_t delivered = mine.owner->async_events().detach(mine.async);
      await_async(mine.mutex, mine.cond, mine.events_completed, delivered);
      pthread_cond_destroy(&mine.cond);
      pthread_mutex_destroy(&mine.mutex);
    }
    return destroyed;
  });
}

}  // namespace beeline::verbs::soft
