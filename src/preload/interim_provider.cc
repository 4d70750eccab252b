// Until the card's full provider is there: what it can do already, everything else refused.
#include <cerrno>
#include <mutex>
#include <set>

#include "verbs/full_provider.h"
#include "nic/card.h"

namespace beeline::verbs {
namespace {

class Interim final : public FullProvider {
 public:
  explicit Interim(nic::Card& card) : p_(make_soft_provider(card)) {}
  const char* name() const override { return p_->name(); }
  std::string why() override { return p_->why(); }
  ibv_device** get_device_list(int* c) override {
    auto** l = p_->get_device_list(c);
    for (auto** d = l; *d; ++d) add(*d);
    return l;
  }
  void free_device_list(ibv_device** l) override { p_->free_device_list(l); }
  const char* get_device_name(ibv_device* d) override { return p_->get_device_name(d); }
  __be64 get_device_guid(ibv_device* d) override { return p_->get_device_guid(d); }
  ibv_context* open_device(ibv_device* d) override { return add(p_->open_device(d)); }
  int close_device(ibv_context* c) override { return p_->close_device(c); }
  int query_device(ibv_context* c, ibv_device_attr* o) override { return p_->query_device(c, o); }
  int query_port(ibv_context* c, std::uint8_t n, ibv_port_attr* o) override { return p_->query_port(c, n, o); }
  int query_gid_ex(ibv_context* c, std::uint32_t n, std::uint32_t i, ibv_gid_entry* o) override {
    return p_->query_gid_ex(c, n, i, o);
  }
  ibv_pd* alloc_pd(ibv_context* c) override { return add(p_->alloc_pd(c)); }
  int dealloc_pd(ibv_pd* o) override { return p_->dealloc_pd(o); }
  ibv_mr* reg_mr(ibv_pd* pd, void* a, std::size_t b, int f) override { return add(p_->reg_mr(pd, a, b, f)); }
  int dereg_mr(ibv_mr* o) override { return p_->dereg_mr(o); }
  ibv_comp_channel* create_comp_channel(ibv_context* c) override { return add(p_->create_comp_channel(c)); }
  int destroy_comp_channel(ibv_comp_channel* o) override { return p_->destroy_comp_channel(o); }
  ibv_cq* create_cq(ibv_context* c, int n, void* x, ibv_comp_channel* h, int v) override {
    return add(p_->create_cq(c, n, x, h, v));
  }
  int destroy_cq(ibv_cq* o) override { return p_->destroy_cq(o); }
  int get_cq_event(ibv_comp_channel* h, ibv_cq** q, void** x) override { return p_->get_cq_event(h, q, x); }
  void ack_cq_events(ibv_cq* q, unsigned n) override { p_->ack_cq_events(q, n); }
  ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* a) override { return add(p_->create_qp(pd, a)); }
  int modify_qp(ibv_qp* q, ibv_qp_attr* a, int m) override { return p_->modify_qp(q, a, m); }
  int query_qp(ibv_qp* q, ibv_qp_attr* a, int m, ibv_qp_init_attr* i) override {
    return p_->query_qp(q, a, m, i);
  }
  int destroy_qp(ibv_qp* o) override { return p_->destroy_qp(o); }
  int query_qp_data_in_order(ibv_qp* q, ibv_wr_opcode o, std::uint32_t f) override {
    return p_->query_qp_data_in_order(q, o, f);
  }

  bool owns_device(const ibv_device* d) override { return has(d); }
  bool owns(const void* o) override { return has(o); }
  int get_device_index(ibv_device*) override { return -1; }
  int query_gid(ibv_context* c, std::uint8_t port, int index, ibv_gid* out) override {
    ibv_gid_entry e{};
    const int rc = query_gid_ex(c, port, static_cast<std::uint32_t>(index), &e);
    if (rc != 0) return errno = rc, -1;
    *out = e.gid;
    return 0;
  }
  int query_pkey(ibv_context*, std::uint8_t, int, __be16* o) override { return *o = 0xFFFF, 0; }
  int get_pkey_index(ibv_context*, std::uint8_t, __be16) override { return 0; }
  ssize_t query_gid_table(ibv_context*, ibv_gid_entry*, std::size_t, std::uint32_t, std::size_t) override {
    return -EOPNOTSUPP;
  }
  ibv_mr* reg_mr_iova(ibv_pd* pd, void* a, std::size_t b, std::uint64_t, unsigned f) override {
    return reg_mr(pd, a, b, static_cast<int>(f & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE)));
  }
  int rereg_mr(ibv_mr*, int, ibv_pd*, void*, std::size_t, int) override { return -1; }
  int resize_cq(ibv_cq*, int) override { return EOPNOTSUPP; }
  ibv_srq* create_srq(ibv_pd*, ibv_srq_init_attr*) override { return errno = EOPNOTSUPP, nullptr; }
  int modify_srq(ibv_srq*, ibv_srq_attr*, int) override { return EOPNOTSUPP; }
  int query_srq(ibv_srq*, ibv_srq_attr*) override { return EOPNOTSUPP; }
  int destroy_srq(ibv_srq*) override { return EOPNOTSUPP; }
  ibv_ah* create_ah(ibv_pd*, ibv_ah_attr*) override { return errno = EOPNOTSUPP, nullptr; }
  int destroy_ah(ibv_ah*) override { return EOPNOTSUPP; }
  ibv_qp_ex* qp_to_qp_ex(ibv_qp*) override { return nullptr; }
  int get_async_event(ibv_context*, ibv_async_event*) override { return errno = EOPNOTSUPP, -1; }
  void ack_async_event(ibv_async_event*) override {}

 private:
  template <class T>
  T* add(T* o) {
    const std::lock_guard g(m_);
    if (o) s_.insert(o);
    return o;
  }
  bool has(const void* o) {
    const std::lock_guard g(m_);
    return s_.count(o) > 0;
  }
  std::unique_ptr<Provider> p_;
  std::mutex m_;
  std::set<const void*> s_;
};

}  // namespace

std::unique_ptr<FullProvider> make_full_soft_provider(nic::Card& card) {
  return std::make_unique<Interim>(card);
}

}  // namespace beeline::verbs
