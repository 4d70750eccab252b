// Completion channels and completion queues.

#include <cerrno>

#include "verbs/soft/soft_provider.h"

namespace beeline::verbs::soft {
namespace {

void raise_event(void* cookie) {
  auto* cq = static_cast<Cq*>(cookie);
  if (cq->reports_to != nullptr) cq->reports_to->raise(cq);
}

void raise_async(void* cookie, nic::CardEvent) {
  auto* cq = static_cast<Cq*>(cookie);
  cq->owner->async_events().raise(cq->async, IBV_EVENT_CQ_ERR);
}

// What <infiniband/verbs.h> lets a program ask of an extended queue and the card can give. There are
// no time stamps: the card does not know when a completion happened, only when somebody looks.
constexpr std::uint64_t wc_fields = IBV_WC_STANDARD_FLAGS;

}  // namespace

ibv_comp_channel* SoftProvider::create_comp_channel(ibv_context* context) {
  if (!holds(context)) return fail_null<ibv_comp_channel>(EINVAL);
  auto channel = std::make_unique<Channel>(context);
  if (!channel->open()) return nullptr;
  return adopt(std::move(channel), context_of(context));
}

int SoftProvider::destroy_comp_channel(ibv_comp_channel* channel) {
  return release(channel, [](Channel& mine) -> Result<void> {
    if (mine.attached()) return fail(Errc::in_use, "completion queues still report to this channel");
    return {};
  });
}

Cq* SoftProvider::make_cq(Context* owner, std::uint32_t cqe, void* cq_context, ibv_comp_channel* channel,
                          std::uint32_t vector) {
  if (cqe < 1 || cqe > card_.limits().cq_depth ||
      vector >= static_cast<std::uint32_t>(owner->get()->num_comp_vectors) ||
      (channel != nullptr && (!holds(channel) || mine(channel)->owner != owner)))
    return fail_null<Cq>(EINVAL);
  auto cq = std::make_unique<Cq>();
  cq->owner = owner;
  cq->card = &card_;
  cq->cq_context = cq_context;
  cq->cqe = static_cast<int>(cqe);
  if (channel != nullptr) cq->reports_to = mine(channel);
  const auto queue = card_.create_cq(cqe, raise_event, cq.get(), raise_async);
  if (!queue) return fail_null<Cq>(note(queue.error()));
  cq->queue = *queue;
  if (cq->reports_to != nullptr) cq->reports_to->attach(cq.get());
  owner->async_events().attach(cq->async);
  return mine(adopt(std::move(cq), owner));
}

ibv_cq* SoftProvider::create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                                int vector) {
  if (!holds(context) || cqe < 1 || vector < 0) return fail_null<ibv_cq>(EINVAL);
  return make_cq(context_of(context), static_cast<std::uint32_t>(cqe), cq_context, channel,
                 static_cast<std::uint32_t>(vector));
}

ibv_cq_ex* SoftProvider::create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  if (!holds(context)) return fail_null<ibv_cq_ex>(EINVAL);
  const bool has_flags = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0;
  // One thread at a time is a promise of the program, which may keep it. An overrun cannot be ignored.
  if ((attr->wc_flags & ~wc_fields) != 0 || (attr->comp_mask & ~IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ||
      (has_flags && (attr->flags & ~IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0))
    return fail_null<ibv_cq_ex>(EOPNOTSUPP);
  Cq* cq = make_cq(context_of(context), attr->cqe, attr->cq_context, attr->channel, attr->comp_vector);
  if (cq == nullptr) return nullptr;
  extend(*cq);
  return cq->extended();
}

int SoftProvider::resize_cq(ibv_cq* cq, int cqe) {
  if (!holds(cq) || cqe < 1 || static_cast<std::uint32_t>(cqe) > card_.limits().cq_depth) return EINVAL;
  const auto resized = card_.resize_cq(mine(cq)->queue, static_cast<std::uint32_t>(cqe));
  if (!resized) {
    const int error = note(resized.error());
    return error == EBUSY ? EINVAL : error;  // more wait than would fit: what programs know from drivers
  }
  cq->cqe = cqe;
  return 0;
}

int SoftProvider::destroy_cq(ibv_cq* cq) {
  return release(cq, [this](Cq& mine) {
    auto destroyed = card_.destroy_cq(mine.queue);  // from here on nobody raises its events
    if (!destroyed) return destroyed;
    if (mine.reports_to != nullptr) mine.reports_to->detach(&mine);
    const std::uint32_t delivered = mine.owner->async_events().detach(mine.async);
    await_async(mine.mutex, mine.cond, mine.async_events_completed, delivered);
    return destroyed;
  });
}

int SoftProvider::get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  if (!holds(channel)) return fail_minus_one(EINVAL);
  return mine(channel)->next(cq, cq_context);
}

void SoftProvider::ack_cq_events(ibv_cq* cq, unsigned count) {
  if (live_.remembers(cq, Kind::completion_queue)) acknowledge(cq, count);
}

}  // namespace beeline::verbs::soft
