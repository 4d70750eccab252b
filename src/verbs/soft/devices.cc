// Devices, contexts, what they say about themselves, and their asynchronous events.

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/log.h"
#include "verbs/soft/soft_provider.h"

namespace beeline::verbs {
namespace soft {
namespace {

constexpr __be16 default_pkey = 0xFFFF;  // full member of the default partition (IBTA vol. 1, 10.9.1.2)

// Completion vectors are a promise about interrupts. There are none here: any number keeps it, and programs
// that spread their queues find what they look for.
int completion_vectors() { return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 64); }

SoftProvider* provider_of(ibv_context* context) { return context_of(context)->provider; }

}  // namespace

const ContextOps context_ops = {
    .query_device = query_device,
    .query_port = query_port,
    .poll_cq = poll_cq,
    .req_notify_cq = req_notify_cq,
    .post_send = post_send,
    .post_recv = post_recv,
    .post_srq_recv = post_srq_recv,
    .alloc_mw = [](ibv_pd* pd, ibv_mw_type type) { return provider_of(pd->context)->alloc_mw(pd, type); },
    .bind_mw = bind_mw,
    .dealloc_mw = [](ibv_mw* mw) { return provider_of(mw->context)->dealloc_mw(mw); },
    .create_cq_ex =
        [](ibv_context* context, ibv_cq_init_attr_ex* attr) {
          return provider_of(context)->create_cq_ex(context, attr);
        },
    .create_qp_ex =
        [](ibv_context* context, ibv_qp_init_attr_ex* attr) {
          return provider_of(context)->create_qp_ex(context, attr);
        },
};

SoftProvider::SoftProvider(nic::Card& card) : card_(card) {
  for (const nic::Device& of_card : card.devices()) {
    auto device = std::make_unique<Device>();
    device->index = static_cast<int>(devices_.size());
    name_device(device->device, of_card.name);
    devices_.push_back(std::move(device));
  }
  card.add_port_sink(
      [](void* self, int device, nic::PortEvent event) {
        static_cast<SoftProvider*>(self)->raise_port_event(device, event);
      },
      this);
}

SoftProvider::~SoftProvider() { card_.remove_port_sink(this); }

namespace {
ibv_event_type type_of(nic::PortEvent event) {
  switch (event) {
    case nic::PortEvent::active:
      return IBV_EVENT_PORT_ACTIVE;
    case nic::PortEvent::error:
      return IBV_EVENT_PORT_ERR;
    case nic::PortEvent::gids_changed:
      break;
  }
  return IBV_EVENT_GID_CHANGE;
}
}  // namespace

void SoftProvider::raise_port_event(int device, nic::PortEvent event) {
  const std::lock_guard lock(open_contexts_mutex_);
  for (Context* context : open_contexts_)
    if (context->device_index == device) context->async_events().raise(context->port_events, type_of(event));
}

int SoftProvider::note(const Error& error) {
  logger()->debug("verbs: {}", error.message);
  reason_.note(error.message);
  return to_errno(error.code);
}

bool SoftProvider::owns_device(const ibv_device* device) {
  return std::any_of(devices_.begin(), devices_.end(),
                     [device](const auto& mine) { return &mine->device == device; });
}

ibv_device** SoftProvider::get_device_list(int* count) {
  auto list = std::make_unique<ibv_device*[]>(devices_.size() + 1);
  for (std::size_t i = 0; i < devices_.size(); ++i) list[i] = &devices_[i]->device;
  if (count != nullptr) *count = static_cast<int>(devices_.size());
  return list.release();
}

__be64 SoftProvider::get_device_guid(ibv_device* device) {
  if (!owns_device(device)) return 0;
  return htobe64(card_.device(reinterpret_cast<Device*>(device)->index).guid);
}

int SoftProvider::get_device_index(ibv_device* device) {
  return owns_device(device) ? reinterpret_cast<Device*>(device)->index : -1;
}

ibv_context* SoftProvider::open_device(ibv_device* device) {
  if (!owns_device(device)) return fail_null<ibv_context>(ENODEV);
  auto context = std::make_unique<Context>(device, context_ops);
  if (!context->open()) return nullptr;
  context->provider = this;
  context->card = &card_;
  context->device_index = reinterpret_cast<Device*>(device)->index;
  context->get()->num_comp_vectors = completion_vectors();
  context->async_events().attach(context->port_events);
  live_.add(context->get(), Kind::context);
  const std::lock_guard lock(open_contexts_mutex_);
  open_contexts_.push_back(context.get());
  return context.release()->get();
}

int SoftProvider::close_device(ibv_context* context) {
  if (!live_.claim(context, Kind::context)) return EINVAL;
  if (context_of(context)->objects > 0) {
    live_.revive(context);
    return EBUSY;
  }
  {
    const std::lock_guard lock(open_contexts_mutex_);
    std::erase(open_contexts_, context_of(context));
  }
  live_.remove(context);
  delete context_of(context);
  return 0;
}

namespace {

// Nobody will acknowledge an event of an object that its program forgot.
void forgive_events(ibv_cq* cq) {
  if (mine(cq)->reports_to != nullptr) mine(cq)->reports_to->forgive(mine(cq));
  mine(cq)->owner->async_events().forgive(mine(cq)->async, cq->mutex, cq->async_events_completed);
}
void forgive_events(ibv_qp* qp) {
  mine(qp)->owner->async_events().forgive(mine(qp)->async, qp->mutex, qp->events_completed);
}
void forgive_events(ibv_srq* srq) {
  mine(srq)->owner->async_events().forgive(mine(srq)->async, srq->mutex, srq->events_completed);
}
void forgive_events(void*) {}  // the others have none

}  // namespace

template <class Base>
void SoftProvider::sweep(ibv_context* context, int (SoftProvider::*destroy)(Base*)) {
  constexpr Kind kind = std::remove_pointer_t<decltype(mine(std::declval<Base*>()))>::kind;
  for (const void* object : live_.made_from(context, kind)) {
    auto* left = static_cast<Base*>(const_cast<void*>(object));
    forgive_events(left);
    (this->*destroy)(left);
  }
}

int SoftProvider::close_device_with_all(ibv_context* context) {
  if (!holds(context)) return EINVAL;
  sweep(context, &SoftProvider::destroy_qp);
  sweep(context, &SoftProvider::dealloc_mw);
  sweep(context, &SoftProvider::destroy_ah);
  sweep(context, &SoftProvider::destroy_srq);
  sweep(context, &SoftProvider::destroy_cq);
  sweep(context, &SoftProvider::destroy_comp_channel);
  sweep(context, &SoftProvider::dereg_mr);
  sweep(context, &SoftProvider::dealloc_pd);
  return close_device(context);
}

int SoftProvider::query_device(ibv_context* context, ibv_device_attr* out) {
  return holds(context) ? soft::query_device(context, out) : EINVAL;
}

int SoftProvider::query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out) {
  return holds(context) ? soft::query_port(context, port, out) : EINVAL;
}

int SoftProvider::query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                               ibv_gid_entry* out) {
  return holds(context) ? soft::query_gid_ex(context, port, index, out) : EINVAL;
}

int SoftProvider::query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* out) {
  if (!holds(context) || port != 1 || index < 0) return fail_minus_one(EINVAL);
  const std::vector<Gid> gids = context_of(context)->device().gids;
  if (static_cast<std::size_t>(index) >= gids.size()) return fail_minus_one(EINVAL);
  *out = from_gid(gids[static_cast<std::size_t>(index)]);  // an empty slot reads as zero
  return 0;
}

int SoftProvider::query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* out) {
  if (!holds(context) || port != 1 || index != 0) return fail_minus_one(EINVAL);
  *out = default_pkey;
  return 0;
}

int SoftProvider::get_pkey_index(ibv_context* context, std::uint8_t port, __be16 pkey) {
  if (!holds(context) || port != 1 || pkey != default_pkey) return fail_minus_one(EINVAL);
  return 0;
}

ssize_t SoftProvider::query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t max_entries,
                                      std::uint32_t flags, std::size_t entry_bytes) {
  if (!holds(context) || flags != 0 || entry_bytes < sizeof(ibv_gid_entry)) return -EINVAL;
  const std::size_t slots = context_of(context)->device().gids.size();
  std::size_t filled = 0;
  for (std::size_t i = 0; i < slots; ++i) {
    ibv_gid_entry entry{};
    if (soft::query_gid_ex(context, 1, static_cast<std::uint32_t>(i), &entry) != 0) continue;
    if (filled == max_entries) return -EINVAL;
    // The caller's entries may be longer than those we know (ibv_query_gid_table(3)).
    auto* place = reinterpret_cast<std::byte*>(entries) + filled++ * entry_bytes;
    std::memset(place, 0, entry_bytes);
    std::memcpy(place, &entry, sizeof entry);
  }
  return static_cast<ssize_t>(filled);
}

int SoftProvider::get_async_event(ibv_context* context, ibv_async_event* out) {
  if (!holds(context)) return fail_minus_one(EINVAL);
  return context_of(context)->async_events().next(out);
}

namespace {
enum class About : unsigned char { completion_queue, queue_pair, shared_queue, nothing };
About about(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return About::completion_queue;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return About::queue_pair;
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return About::shared_queue;
    default:
      return About::nothing;
  }
}
}  // namespace

void SoftProvider::ack_async_event(ibv_async_event* event) {
  const auto& element = event->element;
  switch (about(event->event_type)) {
    case About::completion_queue:
      if (live_.remembers(element.cq, Kind::completion_queue))
        acknowledge_async(element.cq->mutex, element.cq->cond, element.cq->async_events_completed);
      return;
    case About::queue_pair:
      if (live_.remembers(element.qp, Kind::queue_pair))
        acknowledge_async(element.qp->mutex, element.qp->cond, element.qp->events_completed);
      return;
    case About::shared_queue:
      if (live_.remembers(element.srq, Kind::shared_queue))
        acknowledge_async(element.srq->mutex, element.srq->cond, element.srq->events_completed);
      return;
    case About::nothing:
      return;
  }
}

}  // namespace soft

std::unique_ptr<FullProvider> make_full_soft_provider(nic::Card& card) {
  return std::make_unique<soft::SoftProvider>(card);
}

std::unique_ptr<Provider> make_soft_provider(nic::Card& card) { return make_full_soft_provider(card); }

}  // namespace beeline::verbs
