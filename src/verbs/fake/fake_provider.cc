#include "verbs/fake/fake_provider.h"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "verbs/fake/fabric.h"
#include "verbs/fake/objects.h"

namespace beeline::verbs {
namespace fake {
namespace {

Context* context_of(ibv_context* context) { return static_cast<Context*>(ContextShell::from(context)); }

int query_device(ibv_context* context, ibv_device_attr* out);
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out);

constexpr ContextOps context_ops = {
    .query_device = query_device,
    .query_port = query_port,
    .poll_cq =
        [](ibv_cq* cq, int count, ibv_wc* out) {
          return context_of(cq->context)->fabric->poll(static_cast<Cq*>(cq), count, out);
        },
    .req_notify_cq =
        [](ibv_cq* cq, int solicited) {
          return context_of(cq->context)->fabric->arm(static_cast<Cq*>(cq), solicited != 0);
        },
    .post_send =
        [](ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
          return context_of(qp->context)->fabric->post_send(static_cast<Qp*>(qp), wr, bad);
        },
    .post_recv =
        [](ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
          return context_of(qp->context)->fabric->post_recv(static_cast<Qp*>(qp), wr, bad);
        },
};

constexpr int max_depth = 16384;
constexpr int max_sges = 16;

int query_device(ibv_context* context, ibv_device_attr* out) {
  *out = {};
  const Context* owner = context_of(context);
  out->node_guid = out->sys_image_guid = htobe64(0xFA4E'0000'0000'0000u + owner->home->options.netdev_index);
  out->max_mr_size = UINT64_MAX;
  out->max_qp = out->max_cq = out->max_mr = out->max_pd = 65536;
  out->max_qp_wr = max_depth;
  out->max_sge = out->max_sge_rd = max_sges;
  out->max_cqe = owner->max_cqe;
  out->max_qp_rd_atom = out->max_qp_init_rd_atom = owner->max_reads;
  out->max_res_rd_atom = owner->max_reads * out->max_qp;
  out->max_pkeys = 1;
  out->phys_port_cnt = 1;
  return 0;
}

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out) {
  if (port != 1) return EINVAL;
  *out = {};
  const FakeDevice& device = context_of(context)->home->options;
  out->state = device.active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  out->phys_state = device.active ? 5 : 3;  // link up, disabled
  out->max_mtu = IBV_MTU_4096;
  out->active_mtu = mtu_enum(device.active_mtu_bytes);
  out->gid_tbl_len = static_cast<int>(device.gids.size());
  out->max_msg_sz = proto::max_message_bytes;
  out->pkey_tbl_len = 1;
  out->active_width = device.active_width;
  out->active_speed = device.active_speed;
  out->link_layer = device.link_layer;
  return 0;
}

template <class T>
T* fail_null(int error) {
  errno = error;
  return nullptr;
}

// The attributes that a state change must carry (ibv_modify_qp(3), table for RC).
struct Transition {
  ibv_qp_state from, to;
  int required;
};
constexpr Transition transitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0},
};

bool is_legal(ibv_qp_state from, ibv_qp_state to, int mask) {
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return true;
  for (const Transition& row : transitions)
    if (row.from == from && row.to == to) return (mask & row.required) == row.required;
  return false;
}

void copy_attributes(ibv_qp_attr& to, const ibv_qp_attr& from, int mask) {
  if (mask & IBV_QP_ACCESS_FLAGS) to.qp_access_flags = from.qp_access_flags;
  if (mask & IBV_QP_PKEY_INDEX) to.pkey_index = from.pkey_index;
  if (mask & IBV_QP_PORT) to.port_num = from.port_num;
  if (mask & IBV_QP_AV) to.ah_attr = from.ah_attr;
  if (mask & IBV_QP_PATH_MTU) to.path_mtu = from.path_mtu;
  if (mask & IBV_QP_TIMEOUT) to.timeout = from.timeout;
  if (mask & IBV_QP_RETRY_CNT) to.retry_cnt = from.retry_cnt;
  if (mask & IBV_QP_RNR_RETRY) to.rnr_retry = from.rnr_retry;
  if (mask & IBV_QP_RQ_PSN) to.rq_psn = from.rq_psn;
  if (mask & IBV_QP_SQ_PSN) to.sq_psn = from.sq_psn;
  if (mask & IBV_QP_MAX_QP_RD_ATOMIC) to.max_rd_atomic = from.max_rd_atomic;
  if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  if (mask & IBV_QP_MIN_RNR_TIMER) to.min_rnr_timer = from.min_rnr_timer;
  if (mask & IBV_QP_DEST_QPN) to.dest_qp_num = from.dest_qp_num;
}

// Values that no device takes, or that this one does not have.
bool is_sane(const Context& context, const ibv_qp_attr& attr, int mask) {
  if ((mask & IBV_QP_PORT) && attr.port_num != 1) return false;
  if ((mask & IBV_QP_PATH_MTU) && mtu_bytes(attr.path_mtu) == 0) return false;
  if ((mask & IBV_QP_AV)) {
    const auto& gids = context.home->options.gids;
    const auto& grh = attr.ah_attr.grh;
    if (attr.ah_attr.is_global == 0 || grh.sgid_index >= gids.size()) return false;
    if (gids[grh.sgid_index].is_zero()) return false;
  }
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr.max_rd_atomic > context.max_reads) return false;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr.max_dest_rd_atomic > context.max_reads) return false;
  return true;
}

}  // namespace

class FabricProvider final : public FakeProvider {
 public:
  explicit FabricProvider(const FakeOptions& options) : options_(options), fabric_(options.delivery) {
    for (const FakeDevice& device : options.devices) {
      auto shell = std::make_unique<Device>();
      shell->options = device;
      name_device(shell->device, device.name);
      devices_.push_back(std::move(shell));
    }
  }

  const char* name() const override { return "fake"; }

  ibv_device** get_device_list(int* count) override {
    auto list = std::make_unique<ibv_device*[]>(devices_.size() + 1);
    for (std::size_t i = 0; i < devices_.size(); ++i) list[i] = &devices_[i]->device;
    if (count != nullptr) *count = static_cast<int>(devices_.size());
    return list.release();
  }
  void free_device_list(ibv_device** list) override { delete[] list; }
  const char* get_device_name(ibv_device* device) override { return device->name; }
  __be64 get_device_guid(ibv_device* device) override {
    return htobe64(0xFA4E'0000'0000'0000u + reinterpret_cast<Device*>(device)->options.netdev_index);
  }

  ibv_context* open_device(ibv_device* device) override {
    auto context = std::make_unique<Context>(device, context_ops);
    if (!context->open()) return nullptr;
    context->fabric = &fabric_;
    context->home = reinterpret_cast<Device*>(device);
    context->max_reads = options_.max_reads;
    context->max_cqe = options_.max_cqe;
    return context.release()->get();
  }
  int close_device(ibv_context* context) override {
    {
      const std::lock_guard guard(fabric_.mutex());
      if (context_of(context)->objects > 0) return EBUSY;
    }
    delete context_of(context);
    return 0;
  }

  int query_device(ibv_context* context, ibv_device_attr* out) override {
    return fake::query_device(context, out);
  }
  int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out) override {
    return fake::query_port(context, port, out);
  }
  int query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                   ibv_gid_entry* out) override {
    const FakeDevice& device = context_of(context)->home->options;
    if (port != 1 || index >= device.gids.size()) return EINVAL;
    if (device.gids[index].is_zero()) return ENODATA;
    *out = {from_gid(device.gids[index]), index, port, device.gid_type,
            static_cast<std::uint32_t>(device.netdev_index)};
    return 0;
  }

  ibv_pd* alloc_pd(ibv_context* context) override {
    auto* pd = new Pd{};
    pd->context = context;
    count(context, +1);
    return pd;
  }
  int dealloc_pd(ibv_pd* pd) override {
    const std::lock_guard guard(fabric_.mutex());
    auto* mine = static_cast<Pd*>(pd);
    if (mine->users > 0) return EBUSY;
    --context_of(pd->context)->objects;
    delete mine;
    return 0;
  }

  ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) override {
    access &= ~IBV_ACCESS_OPTIONAL_RANGE;  // permissions to be faster: no need to use them
    constexpr int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    if ((access & ~known) != 0) return fail_null<ibv_mr>(EOPNOTSUPP);
    if ((access & IBV_ACCESS_REMOTE_WRITE) && !(access & IBV_ACCESS_LOCAL_WRITE))
      return fail_null<ibv_mr>(EINVAL);
    const std::lock_guard guard(fabric_.mutex());
    auto* mr = new Mr{};
    mr->context = pd->context;
    mr->pd = pd;
    mr->addr = address;
    mr->length = bytes;
    mr->lkey = mr->rkey = mr->handle = fabric_.new_key();
    mr->access = access;
    fabric_.add_mr(mr);
    ++static_cast<Pd*>(pd)->users;
    return mr;
  }
  int dereg_mr(ibv_mr* mr) override {
    const std::lock_guard guard(fabric_.mutex());
    auto* mine = static_cast<Mr*>(mr);
    fabric_.remove_mr(mine);
    --static_cast<Pd*>(mr->pd)->users;
    delete mine;
    return 0;
  }

  ibv_comp_channel* create_comp_channel(ibv_context* context) override {
    auto channel = std::make_unique<EventChannel>(context);
    if (!channel->open()) return nullptr;
    count(context, +1);
    return channel.release();
  }
  int destroy_comp_channel(ibv_comp_channel* channel) override {
    auto* mine = static_cast<EventChannel*>(channel);
    if (mine->attached()) return EBUSY;
    count(channel->context, -1);
    delete mine;
    return 0;
  }

  ibv_cq* create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                    int vector) override {
    if (cqe < 1 || cqe > options_.max_cqe || vector < 0 || vector >= context->num_comp_vectors)
      return fail_null<ibv_cq>(EINVAL);
    auto* cq = new Cq{};
    cq->context = context;
    cq->cq_context = cq_context;
    cq->cqe = cqe;
    if (channel != nullptr) static_cast<EventChannel*>(channel)->attach(cq);
    count(context, +1);
    return cq;
  }
  int destroy_cq(ibv_cq* cq) override {
    auto* mine = static_cast<Cq*>(cq);
    {
      const std::lock_guard guard(fabric_.mutex());
      if (mine->users > 0) return EBUSY;
    }
    if (cq->channel != nullptr) static_cast<EventChannel*>(cq->channel)->detach(mine);
    count(cq->context, -1);
    delete mine;
    return 0;
  }
  int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) override {
    return static_cast<EventChannel*>(channel)->next(cq, cq_context);
  }
  void ack_cq_events(ibv_cq* cq, unsigned events) override { acknowledge(cq, events); }

  ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) override {
    const ibv_qp_cap& cap = attr->cap;
    if (attr->qp_type != IBV_QPT_RC || attr->srq != nullptr) return fail_null<ibv_qp>(EOPNOTSUPP);
    if (attr->send_cq == nullptr || attr->recv_cq == nullptr || cap.max_send_wr > max_depth ||
        cap.max_recv_wr > max_depth || cap.max_send_sge > max_sges || cap.max_recv_sge > max_sges ||
        cap.max_inline_data > options_.max_inline_bytes)
      return fail_null<ibv_qp>(EINVAL);
    auto qp = std::make_unique<Qp>();
    qp->context = pd->context;
    qp->qp_context = attr->qp_context;
    qp->pd = pd;
    qp->send_cq = attr->send_cq;
    qp->recv_cq = attr->recv_cq;
    qp->qp_type = attr->qp_type;
    qp->init = *attr;
    pthread_mutex_init(&qp->mutex, nullptr);
    pthread_cond_init(&qp->cond, nullptr);
    Qp* created = qp.get();
    const std::lock_guard guard(fabric_.mutex());
    count_users(*created, +1);
    created->handle = fabric_.add_qp(std::move(qp));
    return created;
  }

  int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) override {
    const std::lock_guard guard(fabric_.mutex());
    auto* mine = static_cast<Qp*>(qp);
    const ibv_qp_state to = (mask & IBV_QP_STATE) ? attr->qp_state : qp->state;
    if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != qp->state) return EINVAL;
    if (!is_legal(qp->state, to, mask) || !is_sane(*context_of(qp->context), *attr, mask)) return EINVAL;
    copy_attributes(mine->attr, *attr, mask);
    if (to == IBV_QPS_ERR) {
      fabric_.enter_error(mine);
    } else if (to == IBV_QPS_RESET) {
      fabric_.reset(mine);
      mine->attr = {};
    } else {
      qp->state = to;
    }
    fabric_.changed(mine);
    return 0;
  }

  int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) override {
    const std::lock_guard guard(fabric_.mutex());
    const auto* mine = static_cast<const Qp*>(qp);
    *attr = mine->attr;
    attr->qp_state = attr->cur_qp_state = qp->state;
    attr->cap = mine->init.cap;
    *init = mine->init;
    return 0;
  }

  int destroy_qp(ibv_qp* qp) override {
    const std::lock_guard guard(fabric_.mutex());
    auto* mine = static_cast<Qp*>(qp);
    count_users(*mine, -1);
    pthread_cond_destroy(&qp->cond);
    pthread_mutex_destroy(&qp->mutex);
    fabric_.remove_qp(mine);
    return 0;
  }

  int query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) override {
    return options_.data_in_order ? 1 : 0;
  }

  std::vector<FakeQueuePair> queue_pairs() const override {
    const std::lock_guard guard(fabric_.mutex());
    std::vector<FakeQueuePair> all;
    for (const auto& [qpn, qp] : fabric_.queue_pairs())
      all.push_back({qp->context, qpn, qp->attr.dest_qp_num, qp->state});
    return all;
  }
  void kill(std::uint32_t qpn) override {
    const std::lock_guard guard(fabric_.mutex());
    Qp* qp = fabric_.find(qpn);
    if (qp == nullptr) return;
    fabric_.enter_error(qp);
    fabric_.changed(qp);
  }
  void fail_next(std::uint32_t qpn, ibv_wc_status status) override {
    const std::lock_guard guard(fabric_.mutex());
    if (Qp* qp = fabric_.find(qpn)) qp->fail_next = status;
  }
  void corrupt_next(std::uint32_t qpn) override {
    const std::lock_guard guard(fabric_.mutex());
    if (Qp* qp = fabric_.find(qpn)) qp->corrupt_next = true;
  }
  void set_reachable(std::uint32_t qpn, bool reachable) override {
    const std::lock_guard guard(fabric_.mutex());
    Qp* qp = fabric_.find(qpn);
    if (qp == nullptr) return;
    qp->reachable = reachable;
    fabric_.changed(qp);
  }
  void set_paused(bool paused) override {
    const std::lock_guard guard(fabric_.mutex());
    fabric_.set_paused(paused);
  }

 private:
  void count(ibv_context* context, int change) {
    const std::lock_guard guard(fabric_.mutex());
    context_of(context)->objects += change;
  }
  static void count_users(const Qp& qp, int change) {
    static_cast<Pd*>(qp.pd)->users += change;
    static_cast<Cq*>(qp.send_cq)->users += change;
    static_cast<Cq*>(qp.recv_cq)->users += change;
  }

  const FakeOptions options_;
  std::vector<std::unique_ptr<Device>> devices_;
  mutable Fabric fabric_;
};

}  // namespace fake

std::unique_ptr<FakeProvider> make_fake_provider(const FakeOptions& options) {
  return std::make_unique<fake::FabricProvider>(options);
}

}  // namespace beeline::verbs
