// The control path of the software card as verbs: objects made, changed and freed.

#include <endian.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "base/log.h"
#include "verbs/common/reason.h"
#include "verbs/provider.h"
#include "verbs/soft/convert.h"
#include "verbs/soft/objects.h"
#include "verbs/soft/registry.h"

namespace beeline::verbs {
namespace soft {
namespace {

template <class T>
T* fail_null(int error) {
  errno = error;
  return nullptr;
}

void raise_event(void* cookie) {
  auto* cq = static_cast<Cq*>(cookie);
  if (cq->channel != nullptr) static_cast<EventChannel*>(cq->channel)->raise(cq);
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

}  // namespace

class SoftProvider final : public Provider {
 public:
  explicit SoftProvider(nic::Card& card) : card_(card) {
    for (std::size_t i = 0; i < card.devices().size(); ++i) {
      auto device = std::make_unique<Device>();
      device->index = static_cast<int>(i);
      name_device(device->device, card.devices()[i].name);
      devices_.push_back(std::move(device));
    }
  }

  const char* name() const override { return "soft"; }

  ibv_device** get_device_list(int* count) override {
    auto list = std::make_unique<ibv_device*[]>(devices_.size() + 1);
    for (std::size_t i = 0; i < devices_.size(); ++i) list[i] = &devices_[i]->device;
    if (count != nullptr) *count = static_cast<int>(devices_.size());
    return list.release();
  }
  void free_device_list(ibv_device** list) override { delete[] list; }
  const char* get_device_name(ibv_device* device) override { return device->name; }
  __be64 get_device_guid(ibv_device* device) override {
    return htobe64(card_.devices()[reinterpret_cast<Device*>(device)->index].guid);
  }

  ibv_context* open_device(ibv_device* device) override {
    auto context = std::make_unique<Context>(device, context_ops);
    if (!context->open()) return nullptr;
    context->card = &card_;
    context->device_index = reinterpret_cast<Device*>(device)->index;
    context->home = &card_.devices()[context->device_index];
    live_.add(context->get());
    return context.release()->get();
  }
  int close_device(ibv_context* context) override {
    if (!live_.holds(context)) return EINVAL;
    if (context_of(context)->objects > 0) return EBUSY;
    if (!live_.remove(context)) return EINVAL;
    delete context_of(context);
    return 0;
  }

  int query_device(ibv_context* context, ibv_device_attr* out) override {
    return soft::query_device(context, out);
  }
  int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out) override {
    return soft::query_port(context, port, out);
  }
  int query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                   ibv_gid_entry* out) override {
    return soft::query_gid_ex(context, port, index, out);
  }

  ibv_pd* alloc_pd(ibv_context* context) override {
    if (!live_.holds(context)) return fail_null<ibv_pd>(EINVAL);
    const auto id = card_.create_domain();
    if (!id) return fail_null<ibv_pd>(note(id.error()));
    auto pd = std::make_unique<Pd>();
    pd->id = *id;
    pd->handle = id->value;
    return adopt(std::move(pd), context);
  }
  int dealloc_pd(ibv_pd* pd) override {
    return release<Pd>(pd, [this](Pd* mine) { return card_.destroy_domain(mine->id); });
  }

  ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) override {
    if (!live_.holds(pd)) return fail_null<ibv_mr>(EINVAL);
    const auto rights = to_access(static_cast<unsigned>(access));
    if (!rights) return fail_null<ibv_mr>(EOPNOTSUPP);
    // Remote rights to write need local ones (ibv_reg_mr(3)).
    constexpr int remote_writers = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    if ((access & remote_writers) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0)
      return fail_null<ibv_mr>(EINVAL);
    const auto keys = card_.register_region(static_cast<Pd*>(pd)->id, address, bytes,
                                            reinterpret_cast<std::uint64_t>(address), *rights);
    if (!keys) return fail_null<ibv_mr>(note(keys.error()));
    auto mr = std::make_unique<Mr>();
    mr->pd = pd;
    mr->addr = address;
    mr->length = bytes;
    mr->lkey = mr->handle = keys->lkey.value;
    mr->rkey = keys->rkey.value;
    return adopt(std::move(mr), pd->context);
  }
  int dereg_mr(ibv_mr* mr) override {
    return release<Mr>(mr, [this](Mr* mine) { return card_.deregister_region(Key{mine->lkey}); });
  }

  ibv_comp_channel* create_comp_channel(ibv_context* context) override {
    if (!live_.holds(context)) return fail_null<ibv_comp_channel>(EINVAL);
    auto channel = std::make_unique<EventChannel>(context);
    if (!channel->open()) return nullptr;
    return adopt(std::move(channel), context);
  }
  int destroy_comp_channel(ibv_comp_channel* channel) override {
    return release<EventChannel>(channel, [](EventChannel* mine) -> Result<void> {
      if (mine->attached()) return fail(Errc::in_use, "completion queues still report to this channel");
      return {};
    });
  }

  ibv_cq* create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                    int vector) override {
    if (!live_.holds(context) || cqe < 1 || static_cast<std::uint32_t>(cqe) > card_.limits().cq_depth ||
        vector < 0 || vector >= context->num_comp_vectors ||
        (channel != nullptr && (!live_.holds(channel) || channel->context != context)))
      return fail_null<ibv_cq>(EINVAL);
    auto cq = std::make_unique<Cq>();
    cq->cq_context = cq_context;
    cq->cqe = cqe;
    const auto queue = card_.create_cq(static_cast<std::uint32_t>(cqe), raise_event, cq.get());
    if (!queue) return fail_null<ibv_cq>(note(queue.error()));
    cq->queue = *queue;
    if (channel != nullptr) static_cast<EventChannel*>(channel)->attach(cq.get());
    return adopt(std::move(cq), context);
  }
  int destroy_cq(ibv_cq* cq) override {
    return release<Cq>(cq, [this](Cq* mine) {
      auto destroyed = card_.destroy_cq(mine->queue);  // from here on nobody raises its events
      if (destroyed && mine->channel != nullptr) static_cast<EventChannel*>(mine->channel)->detach(mine);
      return destroyed;
    });
  }
  int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) override {
    return static_cast<EventChannel*>(channel)->next(cq, cq_context);
  }
  void ack_cq_events(ibv_cq* cq, unsigned count) override { acknowledge(cq, count); }

  ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) override {
    if (!live_.holds(pd) || !live_.holds(attr->send_cq) || !live_.holds(attr->recv_cq) ||
        attr->send_cq->context != pd->context || attr->recv_cq->context != pd->context)
      return fail_null<ibv_qp>(EINVAL);
    if (attr->qp_type != IBV_QPT_RC || attr->srq != nullptr) return fail_null<ibv_qp>(EOPNOTSUPP);
    nic::QpRequest request;
    request.device = context_of(pd->context)->device_index;
    request.domain = static_cast<Pd*>(pd)->id;
    request.send_cq = static_cast<Cq*>(attr->send_cq)->queue;
    request.receive_cq = static_cast<Cq*>(attr->recv_cq)->queue;
    request.limits = to_limits(*attr);
    const auto pair = card_.create_qp(request);
    if (!pair) return fail_null<ibv_qp>(note(pair.error()));

    auto qp = std::make_unique<Qp>();
    qp->qp_context = attr->qp_context;
    qp->pd = pd;
    qp->send_cq = attr->send_cq;
    qp->recv_cq = attr->recv_cq;
    qp->qp_num = qp->handle = card_.qpn(*pair).value;
    qp->state = IBV_QPS_RESET;
    qp->qp_type = attr->qp_type;
    qp->pair = *pair;
    qp->init = *attr;
    pthread_mutex_init(&qp->mutex, nullptr);
    pthread_cond_init(&qp->cond, nullptr);
    return adopt(std::move(qp), pd->context);
  }

  int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) override {
    if (!live_.holds(qp)) return EINVAL;
    Modification change;
    if (const int error = to_modification(*attr, mask, change); error != 0) return error;
    const auto modified = card_.modify_qp(static_cast<Qp*>(qp)->pair, change.attributes, change.mask,
                                          (mask & IBV_QP_AV) != 0 ? &change.address : nullptr);
    if (!modified) return note(modified.error());
    if ((mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
    return 0;
  }

  int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) override {
    if (!live_.holds(qp)) return EINVAL;
    auto* mine = static_cast<Qp*>(qp);
    nic::AddressVector address;
    from_attributes(card_.query_qp(mine->pair, &address), address, *attr);
    attr->cap = mine->init.cap;
    qp->state = attr->qp_state;
    *init = mine->init;
    return 0;
  }

  int destroy_qp(ibv_qp* qp) override {
    return release<Qp>(qp, [this](Qp* mine) {
      auto destroyed = card_.destroy_qp(mine->pair);
      if (destroyed) {
        pthread_cond_destroy(&mine->cond);
        pthread_mutex_destroy(&mine->mutex);
      }
      return destroyed;
    });
  }

  // Packets are placed in order, but the copy of one packet promises no order of its bytes.
  int query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) override { return 0; }

  std::string why() override { return reason_.take(); }

 private:
  // Keeps the sentence that an errno value cannot carry.
  int note(const Error& error) {
    logger()->debug("verbs: {}", error.message);
    reason_.note(error.message);
    return to_errno(error.code);
  }

  template <class T>
  T* adopt(std::unique_ptr<T> object, ibv_context* context) {
    object->context = context;
    ++context_of(context)->objects;
    live_.add(static_cast<const void*>(object.get()));
    return object.release();
  }

  // `end` gives the card's part back; while it fails the object stays as it is.
  template <class T, class Base, class End>
  int release(Base* object, End end) {
    if (!live_.remove(object)) return EINVAL;
    auto* mine = static_cast<T*>(object);
    if (const Result<void> ended = end(mine); !ended) {
      live_.add(object);
      return note(ended.error());
    }
    --context_of(mine->context)->objects;
    delete mine;
    return 0;
  }

  nic::Card& card_;
  std::vector<std::unique_ptr<Device>> devices_;
  Registry live_;
  Reason reason_;
};

}  // namespace soft

std::unique_ptr<Provider> make_soft_provider(nic::Card& card) {
  return std::make_unique<soft::SoftProvider>(card);
}

}  // namespace beeline::verbs
